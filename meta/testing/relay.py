"""Whether two readings of one Relay program agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from meta.frontend.relay import ast

# Nodes that text names if they are used twice. It repeats constants, operators and the like.
_SHARED = (
    ast.Call,
    ast.Tuple,
    ast.TupleGetItem,
    ast.Let,
    ast.If,
    ast.RelayFunction,
    ast.Match,
    ast.RefCreate,
    ast.RefRead,
)


def differences(text: ast.RelayProgram, saved: ast.RelayProgram, tolerance: float = 1e-5) -> Iterator[str]:
    """The differences between one program read from text and read from JSON.

    Compared up to the names of variables, which the printer makes unique, attributes at their default, which it leaves
    out, and `tolerance` in float constants, which it prints with 6 digits."""
    if sorted(text.functions) != sorted(saved.functions):
        yield f"functions {sorted(text.functions)} and {sorted(saved.functions)}"
        return
    for name, definition in text.types.items():
        other = saved.types.get(name)
        if other is None or _definition(definition) != _definition(other):
            yield f"type {name}"
    compare = _Comparison(tolerance)
    for name, function in text.functions.items():
        yield from compare.run(function, saved.functions[name], f"@{name}")


def left_out(text: ast.RelayProgram, saved: ast.RelayProgram) -> Iterator[tuple[str, str, Any]]:
    """Operator, name and value of the attributes that only the saved program has."""
    compare = _Comparison(1e-5)
    for name, function in text.functions.items():
        for _ in compare.run(function, saved.functions[name], name):
            pass
    yield from compare.left_out


def _definition(definition: ast.TypeDefinition) -> Any:
    return definition.type_params, [(each.name, each.fields) for each in definition.constructors]


class _Comparison:
    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.partners: dict[int, Any] = {}
        self.reverse: dict[int, Any] = {}
        self.left_out: list[tuple[str, str, Any]] = []

    def run(self, a: object, b: object, path: str) -> Iterator[str]:
        pending = [(a, b, path)]
        while pending:
            a, b, path = pending.pop()
            if type(a) is not type(b):
                yield f"{path}: {type(a).__name__} and {type(b).__name__} ({getattr(a, 'place', '')})"
                continue
            if isinstance(a, (ast.Var, *_SHARED)):
                partner = self.partners.get(id(a))
                if partner is not None or id(b) in self.reverse:
                    if partner is not b:
                        yield f"{path}: shared in one program only ({a.place})"
                    continue
                self.partners[id(a)], self.reverse[id(b)] = b, a
            problem, parts = self._compare(a, b)
            if problem:
                yield f"{path}: {problem} ({getattr(a, 'place', '')})"
            pending += [(x, y, f"{path}.{type(a).__name__}") for x, y in parts]

    def _compare(self, a: Any, b: Any) -> tuple[str, list[tuple[Any, Any]]]:
        """How two nodes of one class differ themselves, and the pairs of their parts."""
        match a:
            case ast.Var():
                return "" if a.type == b.type else f"types {a.type} and {b.type}", []
            case ast.OpRef() | ast.GlobalVar() | ast.ConstructorRef():
                return "" if a.name == b.name else f"{a.name} and {b.name}", []
            case ast.Constant():
                return "" if self._same(a, b) else f"constants {a.value} {a.dtype} and {b.value} {b.dtype}", []
            case ast.Call():
                return self._attributes(a, b), [(a.callee, b.callee), *_pairs(a.args, b.args)]
            case ast.Tuple():
                return "", _pairs(a.fields, b.fields)
            case ast.TupleGetItem():
                return "" if a.index == b.index else f"fields {a.index} and {b.index}", [(a.value, b.value)]
            case ast.Let():
                return "", [(a.var, b.var), (a.value, b.value), (a.body, b.body)]
            case ast.If():
                return "", [(a.condition, b.condition), (a.then, b.then), (a.otherwise, b.otherwise)]
            case ast.RelayFunction():
                same = (a.result, a.type_params, dict(a.attrs)) == (b.result, b.type_params, dict(b.attrs))
                return "" if same else f"{a.result} {a.attrs}, {b.result} {b.attrs}", [
                    *_pairs(a.params, b.params),
                    (a.body, b.body),
                ]
            case ast.RefCreate():
                return "", [(a.value, b.value)]
            case ast.RefRead():
                return "", [(a.ref, b.ref)]
            case ast.RefWrite():
                return "", [(a.ref, b.ref), (a.value, b.value)]
            case ast.Match():
                problem = "" if a.complete == b.complete else "match and match?"
                return problem, [pair for x, y in zip(a.clauses, b.clauses, strict=True) for pair in _pairs(x, y)]
            case ast.ConstructorPattern():
                return "" if a.constructor == b.constructor else "constructors", _pairs(a.fields, b.fields)
            case ast.TuplePattern():
                return "", _pairs(a.fields, b.fields)
            case ast.VarPattern():
                return "", [(a.var, b.var)]
            case _:
                return "", []

    def _attributes(self, a: ast.Call, b: ast.Call) -> str:
        name = a.callee.name if isinstance(a.callee, ast.OpRef) else ""
        self.left_out += [(name, key, value) for key, value in b.attrs.items() if key not in a.attrs]
        unequal = [key for key, value in a.attrs.items() if key not in b.attrs or not self._same(value, b.attrs[key])]
        return "; ".join(f"{name} {key}={a.attrs[key]!r} and {b.attrs.get(key, 'none')!r}" for key in unequal)

    def _same(self, a: ast.Attribute, b: ast.Attribute) -> bool:
        if isinstance(a, ast.Constant) and isinstance(b, ast.Constant):
            close = a.dtype == b.dtype and a.value.shape == b.value.shape
            return close and np.allclose(a.value, b.value, rtol=self.tolerance, atol=0, equal_nan=True)
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self._same, a, b))
        if isinstance(a, float) and isinstance(b, float):
            return a == b or math.isclose(a, b, rel_tol=self.tolerance) or (math.isnan(a) and math.isnan(b))
        return type(a) is type(b) and a == b


def _pairs(a: tuple[Any, ...], b: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Pairs of elements; None for a missing one."""
    return [(a[i] if i < len(a) else None, b[i] if i < len(b) else None) for i in range(max(len(a), len(b)))]
