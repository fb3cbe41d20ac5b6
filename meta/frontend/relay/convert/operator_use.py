"""The operators that a Relay program calls, and whether they are supported."""

from __future__ import annotations

from meta.frontend.examination import OperatorUse, operator_uses
from meta.frontend.reader import Reader
from meta.frontend.relay import ast
from meta.frontend.relay.convert.call import converters
from meta.frontend.relay.convert.traversal import nodes
from meta.frontend.relay.errors import RelayError, UnsupportedError

READER = Reader(
    "relay", RelayError, UnsupportedError, "calls or parameters", "docs/from-relay.md lists the supported ones"
)


def operators(program: ast.RelayProgram) -> tuple[OperatorUse, ...]:
    """The operators of the functions that "main" reaches, by name. Nothing is converted."""
    places: dict[str, list[ast.Place]] = {}
    for function in _reachable(program):
        called: set[ast.Expr] = set()
        for node in nodes(function):
            if isinstance(node, ast.Call) and isinstance(node.callee, ast.OpRef):
                places.setdefault(node.callee.name, []).append(node.place)
                called.add(node.callee)
            elif isinstance(node, ast.OpRef) and node not in called:
                places.setdefault(node.name, []).append(node.place)
    in_order = {name: sorted(where, key=lambda place: (place.line, place.column)) for name, where in places.items()}
    return operator_uses({name: map(_position, where) for name, where in in_order.items()}, converters.names())


def _position(place: ast.Place) -> int | str:
    """The line in text, the number of the node in JSON."""
    return place.line or str(place.column)


def _reachable(program: ast.RelayProgram) -> list[ast.RelayFunction]:
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
