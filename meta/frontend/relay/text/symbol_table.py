"""The names in scope at a position of a Relay text."""

from __future__ import annotations

from meta.frontend.relay.ast import Expr


class SymbolTable:
    """Local variables by "%name" and graph bindings by "%0", with nested blocks.

    A variable ends with its block. A graph binding names an expression: the printer may name one inside a branch and
    use it after the branch, so it lasts until its function ends or its number is used again."""

    __slots__ = ("_shadowed", "names")

    def __init__(self) -> None:
        self.names: dict[str, Expr] = {}
        self._shadowed: list[list[tuple[str, Expr | None]]] = [[]]

    def open(self) -> None:
        self._shadowed.append([])

    def declare(self, name: str, value: Expr) -> None:
        self._shadowed[-1].append((name, self.names.get(name)))
        self.names[name] = value

    def close(self) -> None:
        for name, before in reversed(self._shadowed.pop()):
            if before is not None:
                self.names[name] = before
            elif not name[1].isdigit():
                del self.names[name]

    def clear(self) -> None:
        """Remove all names, at the end of a function of the module."""
        self.names.clear()
        self._shadowed = [[]]
