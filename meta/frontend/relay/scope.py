"""The names that are visible at a place of a Relay text."""

from __future__ import annotations

from meta.frontend.relay.ast import Expr


class Scope:
    """Local variables by "%name" and bindings of the graph by "%0", with blocks that hide and uncover.

    A variable ends with its block. A binding of the graph is an expression and no variable: the printer may name one
    inside of a branch and use it behind, so that it lives on until its function ends or its number is used again."""

    __slots__ = ("_hidden", "names")

    def __init__(self) -> None:
        self.names: dict[str, Expr] = {}
        self._hidden: list[list[tuple[str, Expr | None]]] = [[]]

    def open(self) -> None:
        self._hidden.append([])

    def declare(self, name: str, value: Expr) -> None:
        self._hidden[-1].append((name, self.names.get(name)))
        self.names[name] = value

    def close(self) -> None:
        for name, before in reversed(self._hidden.pop()):
            if before is not None:
                self.names[name] = before
            elif not name[1].isdigit():
                del self.names[name]

    def clear(self) -> None:
        """Forget everything, at the end of a function of the module."""
        self.names.clear()
        self._hidden = [[]]
