"""Sizes and layouts of torch's fake tensors in a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from meta import dtype as dtypes
from meta.dim import Dim, evaluate, names
from meta.errors import ArgumentError, MetaError
from meta.frontend.torch.sizes import of_expression
from meta.ir.type import TensorType, tensor_type

_SAMPLES = (7, 18, 35)
"""Values of a size at which two formulas of it are compared."""


class NeedsSizes(Exception):
    """A graph cannot be converted while sizes are open, for the reason in its text."""


class NeedsTorch(Exception):
    """A graph has values that meta has no type for, as its text says; torch runs all of it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The symbols of a graph in a program. values: of the symbols, where the program is for given sizes; else each is a
    symbolic size of its name."""

    values: Mapping[str, int] = field(default_factory=dict[str, int])

    def dim(self, value: Any) -> Dim:
        """An int or a SymInt as a size. Raises NeedsSizes for an expression that meta's sizes do not have."""
        if isinstance(value, int):
            return value
        expression: Any = value.node.expr
        if self.values:
            return int(self._value(expression))
        try:
            return of_expression(expression)
        except MetaError as error:
            raise NeedsSizes(error.problem) from error

    def number(self, value: Any) -> Any:
        """A number of the graph: a size, or a plain bool, int or float. Raises NeedsSizes for a symbolic float or bool
        while sizes are open."""
        if isinstance(value, torch.SymInt):
            return self.dim(value)
        if not isinstance(value, (torch.SymFloat, torch.SymBool)):
            return value
        if not self.values and value.node.expr.free_symbols:
            raise NeedsSizes(f"a number is computed from sizes: {value}")
        kind = bool if isinstance(value, torch.SymBool) else float
        return kind(self._value(value.node.expr))

    def type(self, value: torch.Tensor) -> TensorType:
        """The type of a fake tensor. Raises NeedsTorch for dtypes and layouts that meta lacks."""
        if value.layout is not torch.strided:
            raise NeedsTorch(f"a tensor has the layout {value.layout}")
        try:
            dtype = dtypes.canonical(value.dtype, "torch")
        except ArgumentError as error:
            raise NeedsTorch(error.problem) from error
        return tensor_type(tuple(map(self.dim, value.shape)), dtype, str(value.device))

    def _value(self, expression: Any) -> Any:
        values = {symbol: self.values[str(symbol)] for symbol in expression.free_symbols if str(symbol) in self.values}
        return expression.xreplace(values)


def same_type(a: TensorType, b: TensorType) -> bool:
    """Whether two types have one dtype and sizes that are equal, where formulas differ, at sample values."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.ndim != b.ndim or a.device is not b.device:
        return False
    return all(map(_same_size, a.shape, b.shape))


def _same_size(a: Dim, b: Dim) -> bool:
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    used = sorted(names(a) | names(b))
    return all(
        evaluate(a, values) == evaluate(b, values)
        for sample in _SAMPLES
        for values in [{name: sample + 2 * i for i, name in enumerate(used)}]
    )


def symbols_of(values: Iterable[Any]) -> set[str]:
    """The names of the symbols in fake tensors and symbolic ints."""
    values = list(values)
    strided = [v for v in values if isinstance(v, torch.Tensor) and v.layout is torch.strided]
    others = [v for v in values if not isinstance(v, torch.Tensor)]
    numbers = [*others, *(n for v in strided for n in (*v.shape, *v.stride()))]
    return {str(s) for n in numbers if isinstance(n, torch.SymInt) for s in n.node.expr.free_symbols}


def plain_symbol(value: Any) -> str | None:
    """The name of a symbolic number that is one symbol; None for other values."""
    expression = value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat)) else None
    return str(expression) if getattr(expression, "is_Symbol", False) else None


def dense_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of its axes in which a fake tensor is contiguous; None if it is so as it is, or in no order.

    Symbolic sizes count as those that the graph was recorded for."""
    shape, strides = [_hint(d) for d in value.shape], [_hint(s) for s in value.stride()]
    if any(d is None for d in (*shape, *strides)) or 0 in shape or _is_compact(shape, strides):
        return None
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    return tuple(order) if _is_compact([shape[a] for a in order], [strides[a] for a in order]) else None


def is_dense(value: torch.Tensor) -> bool:
    """Whether a fake tensor is contiguous in some order of its axes, for all values of symbolic sizes."""
    order = dense_order(value) or range(value.ndim)
    shape, strides = [value.shape[axis] for axis in order], [value.stride(axis) for axis in order]
    pairs = zip(shape, strides, contiguous_strides(shape), strict=True)
    return _hint(value.numel()) == 0 or all(_is_one(n) or _expression(s) == _expression(t) for n, s, t in pairs)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _expression(value: Any) -> Any:
    return value if isinstance(value, int) else value.node.expr


def covers_storage(value: torch.Tensor) -> bool:
    """Whether a fake tensor is dense and has all elements of its storage, symbolic sizes as in `dense_order`."""
    numel, count = _hint(value.numel()), _hint(storage_elements(value))
    return is_dense(value) and _hint(value.storage_offset()) == 0 and (numel == count or None in (numel, count))


def storage_elements(value: torch.Tensor) -> Any:
    """The number of elements that the storage of a fake tensor has room for."""
    return value.untyped_storage().nbytes() // value.dtype.itemsize


def contiguous_strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Row-major strides of a shape, whose sizes may be symbolic."""
    strides: list[Any] = []
    following: Any = 1
    for size in reversed(shape):
        strides.append(following)
        following = following * (max(size, 1) if isinstance(size, int) else size)
    return tuple(reversed(strides))


def _is_compact(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return all(n == 1 or s == prod(shape[i + 1 :]) for i, (n, s) in enumerate(zip(shape, strides, strict=True)))


def _hint(value: Any) -> Any:
    return value if isinstance(value, int) else value.node.hint


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
