"""Symbolic sizes of a program as numbers, once its inputs are there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from meta.errors import ArgumentError, IRError
from meta.ir.dim import Dim, SymDim
from meta.ir.type import TensorType, TupleType, Type

Sizes = dict[str, int]
"""Name of a size -> its value."""
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}


def evaluate_dim(value: Dim, sizes: Mapping[str, int]) -> int:
    """A size as a number. Raises IRError when it depends on a name that no input has."""
    if not isinstance(value, SymDim):
        return value
    total = 0
    for names, coefficient in value.terms:
        for name in names:
            coefficient *= sizes[name] if name in sizes else _quotient(ast.parse(name, mode="eval").body, sizes)
        total += coefficient
    return total


def _quotient(node: ast.expr, sizes: Mapping[str, int]) -> int:
    """The printed form of a quotient: sums, products, differences and floor divisions of names and numbers."""
    match node:
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.Constant(value=int() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_quotient(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_quotient(left, sizes), _quotient(right, sizes))
        case _:
            known = ", ".join(sizes) or "none"
            raise IRError("interpreter", f"the size {ast.unparse(node)} is not known", f"a computation on {known}")


def evaluate_attr(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute value with symbolic sizes as numbers."""
    if isinstance(value, SymDim):
        return evaluate_dim(value, sizes)
    return tuple(evaluate_attr(v, sizes) for v in value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownVariableType]


def bind_sizes(where: str, name: str, kind: Type, given: Type, sizes: Sizes) -> None:
    """Learn from an input of type `given` the sizes that `kind` names. Raises ArgumentError when it does not fit."""
    if isinstance(kind, TupleType) and isinstance(given, TupleType) and len(kind.fields) == len(given.fields):
        for i, (k, g) in enumerate(zip(kind.fields, given.fields, strict=True)):
            bind_sizes(where, f"{name}.{i}", k, g, sizes)
        return
    if kind is given or (not isinstance(kind, TensorType) and kind == given):
        return
    if not isinstance(kind, TensorType) or not isinstance(given, TensorType) or not _like(kind, given):
        raise ArgumentError(where, f"input '{name}' is {given!r}", f"{kind!r}")
    for dim, size in zip(kind.shape, given.shape, strict=True):
        if isinstance(dim, SymDim) and _is_name(dim):
            dim = sizes.setdefault(repr(dim), size)  # type: ignore[arg-type]
        if isinstance(dim, int) and dim != size:
            known = {n: s for n, s in sizes.items() if n in repr(kind)}
            raise ArgumentError(where, f"input '{name}' is {given!r}", f"{kind!r}" + _text(known))


def check_sizes(where: str, name: str, kind: Type, given: Type, sizes: Sizes) -> None:
    """Raise ArgumentError unless the sizes that `kind` computes from names are those of `given`."""
    if not isinstance(kind, TensorType) or not isinstance(given, TensorType):
        return
    for dim, size in zip(kind.shape, given.shape, strict=True):
        if isinstance(dim, SymDim) and not _is_name(dim) and evaluate_dim(dim, sizes) != size:
            raise ArgumentError(where, f"input '{name}' is {given!r}", f"{kind!r}" + _text(sizes))


def _like(kind: TensorType, given: TensorType) -> bool:
    return kind.dtype == given.dtype and kind.ndim == given.ndim and kind.device is given.device


def _is_name(dim: SymDim) -> bool:
    return repr(dim).isidentifier()


def _text(sizes: Mapping[str, int]) -> str:
    return f" with {', '.join(f'{n} = {s}' for n, s in sizes.items())}" if sizes else ""
