"""Which operators a Relay program calls, and whether they are supported."""

from __future__ import annotations

from dataclasses import dataclass

from meta.frontend.relay import ast
from meta.frontend.relay.convert import nodes
from meta.frontend.relay.errors import UnsupportedError
from meta.frontend.relay.table import find


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """How a program uses one operator. lines: of its calls, in order (indices of nodes for JSON)."""

    name: str
    supported: bool
    lines: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.lines)


def operators(program: ast.Program) -> tuple[OperatorUse, ...]:
    """The operators of the functions that "main" reaches, by name. Nothing is converted."""
    lines: dict[str, list[int]] = {}
    for function in reached(program):
        called: dict[ast.Expr, ast.Place] = {}
        for node in nodes(function):
            if isinstance(node, ast.Call) and isinstance(node.callee, ast.OpRef):
                lines.setdefault(node.callee.name, []).append(node.place.line or node.place.column)
                called[node.callee] = node.place
            elif isinstance(node, ast.OpRef) and node not in called:
                lines.setdefault(node.name, []).append(node.place.line or node.place.column)
    return tuple(OperatorUse(name, find(name) is not None, tuple(sorted(at))) for name, at in sorted(lines.items()))


def reached(program: ast.Program) -> list[ast.Function]:
    """The functions that "main" calls, directly or not, and itself."""
    out: dict[str, ast.Function] = {}
    stack = ["main"] if "main" in program.functions else list(program.functions)
    while stack:
        name = stack.pop()
        if name in out or name not in program.functions:
            continue
        out[name] = program.functions[name]
        stack += [n.name for n in nodes(out[name]) if isinstance(n, ast.GlobalVar)]
    return list(out.values())


def check_operators(program: ast.Program) -> None:
    """Raise UnsupportedError with every operator that is not supported."""
    missing = [use for use in operators(program) if not use.supported]
    if missing:
        word = "operators are" if len(missing) > 1 else "operator is"
        wrong = f"{len(missing)} {word} not supported: " + ", ".join(map(_said, missing))
        do = "see docs/from-relay.md for those that are"
        raise UnsupportedError("relay", wrong, remedy=do, operators={use.name: use.count for use in missing})


def _said(use: OperatorUse) -> str:
    """`nn.foo (3 times: lines 4, 9, 12)`."""
    shown = ", ".join(map(str, use.lines[:5])) + (", ..." if use.count > 5 else "")
    times = "once" if use.count == 1 else f"{use.count} times"
    return f"{use.name} ({times}: {'line' if use.count == 1 else 'lines'} {shown})"
