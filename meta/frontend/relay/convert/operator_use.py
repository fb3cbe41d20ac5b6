"""The operators that a Relay program calls, and whether they are supported."""

from __future__ import annotations

from dataclasses import dataclass

from meta.frontend.relay import ast
from meta.frontend.relay.convert.table import find
from meta.frontend.relay.convert.traversal import nodes
from meta.frontend.relay.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """The calls of one operator. lines: of the calls, in order; node numbers for JSON."""

    name: str
    supported: bool
    lines: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.lines)


def operators(program: ast.Program) -> tuple[OperatorUse, ...]:
    """The operators of the functions that "main" reaches, by name. Nothing is converted."""
    lines: dict[str, list[int]] = {}
    for function in _reachable(program):
        called: dict[ast.Expr, ast.Place] = {}
        for node in nodes(function):
            if isinstance(node, ast.Call) and isinstance(node.callee, ast.OpRef):
                lines.setdefault(node.callee.name, []).append(node.place.line or node.place.column)
                called[node.callee] = node.place
            elif isinstance(node, ast.OpRef) and node not in called:
                lines.setdefault(node.name, []).append(node.place.line or node.place.column)
    return tuple(
        OperatorUse(name, find(name) is not None, tuple(sorted(places))) for name, places in sorted(lines.items())
    )


def _reachable(program: ast.Program) -> list[ast.RelayFunction]:
    """ "main", and the functions that it calls directly or through others."""
    reached: dict[str, ast.RelayFunction] = {}
    stack = ["main"] if "main" in program.functions else list(program.functions)
    while stack:
        name = stack.pop()
        if name in reached or name not in program.functions:
            continue
        reached[name] = program.functions[name]
        stack += [n.name for n in nodes(reached[name]) if isinstance(n, ast.GlobalVar)]
    return list(reached.values())


def check_operators(program: ast.Program) -> None:
    """Raise UnsupportedError with every operator that is not supported."""
    missing = [use for use in operators(program) if not use.supported]
    if missing:
        word = "operators are" if len(missing) > 1 else "operator is"
        problem = f"{len(missing)} {word} not supported: " + ", ".join(map(_summary, missing))
        remedy = "docs/from-relay.md lists the supported ones"
        raise UnsupportedError("relay", problem, remedy=remedy, operators={use.name: use.count for use in missing})


def _summary(use: OperatorUse) -> str:
    """`nn.foo (3 times: lines 4, 9, 12)`."""
    shown = ", ".join(map(str, use.lines[:5])) + (", ..." if use.count > 5 else "")
    times = "once" if use.count == 1 else f"{use.count} times"
    return f"{use.name} ({times}: {'line' if use.count == 1 else 'lines'} {shown})"
