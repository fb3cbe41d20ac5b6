"""Types of values: tensors, tuples, functions, and values known while typing. Tensor types are interned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from meta.device import CPU, Device, device
from meta.dim import Dim, Shape, product
from meta.dtype import itemsize
from meta.locks import new_lock
from meta.tree import leaves_of


class TensorType:
    """Shape, dtype and device of a tensor. One object per distinct type (`tensor_type`), so `is` compares and
    the identity hash makes it the fastest possible cache key."""

    __slots__ = ("__weakref__", "device", "dtype", "ndim", "shape")

    shape: Shape
    dtype: str
    device: Device
    ndim: int

    def __init__(self, shape: Shape, dtype: str, device: Device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.ndim = len(shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes of the data."""
        return product(self.shape) * itemsize(self.dtype)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return tensor_type(shape, self.dtype, self.device)

    def with_dtype(self, dtype: str) -> TensorType:
        return tensor_type(self.shape, dtype, self.device)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape)) + ("," if self.ndim == 1 else "")
        device = "" if self.device is CPU else f', "{self.device}"'
        return f'Tensor[({dims}), "{self.dtype}"{device}]'

    def __reduce__(self) -> tuple[object, tuple[Shape, str, Device]]:
        return tensor_type, (self.shape, self.dtype, self.device)


_interned: WeakValueDictionary[tuple[Shape, str, Device], TensorType] = WeakValueDictionary()
_lock = new_lock("types")


def tensor_type(shape: Shape, dtype: str = "float32", on: Device | str = CPU) -> TensorType:
    """The one TensorType of `shape` (a tuple of ints or symbolic sizes), `dtype` and device `on`."""
    where = on if isinstance(on, Device) else device(on)
    key = (shape, dtype, where)
    interned = _interned.get(key)
    if interned is not None:
        return interned
    with _lock:
        interned = _interned.get(key)
        if interned is None:
            interned = _interned[key] = TensorType(shape, dtype, where)
        return interned


@dataclass(frozen=True, slots=True)
class TupleType:
    """A fixed number of values."""

    fields: tuple[Type, ...]

    def __repr__(self) -> str:
        return "(" + ", ".join(map(repr, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


@dataclass(frozen=True, slots=True)
class FunctionType:
    """A function value."""

    params: tuple[Type, ...]
    result: Type

    def __repr__(self) -> str:
        return f"fn({', '.join(map(repr, self.params))}) -> {self.result!r}"


@dataclass(frozen=True, slots=True)
class Value:
    """The result of an operator whose value follows from the argument types alone (`shape`): no kernel runs."""

    value: int | float | bool | tuple[Dim, ...]

    def __repr__(self) -> str:
        return f"Value({self.value!r})"


Type = TensorType | TupleType | FunctionType | Value


def leaf_types(kind: Type) -> tuple[Type, ...]:
    """The types of the tensors (and functions) that a value is made of, nested tuples flattened."""
    if isinstance(kind, TupleType):
        return tuple(leaf for field in kind.fields for leaf in leaf_types(field))
    return (kind,)


def flat_types(args: Iterable[Any]) -> list[TensorType]:
    """The tensor types in a nest of arguments or result types, in order."""
    return [t for leaf in leaves_of(tuple(args)) for t in leaf_types(leaf) if isinstance(t, TensorType)]
