"""The symbolic sizes of a program as numbers, read off its inputs."""

from __future__ import annotations

from meta.dim import SymDim, evaluate, names
from meta.errors import ArgumentError
from meta.ir.type import TensorType, TupleType, Type

Sizes = dict[str, int]
"""Name of a size -> its value."""


def bind_sizes(where: str, name: str, kind: Type, actual: Type, sizes: Sizes) -> None:
    """Add to `sizes` those that the parameter type `kind` names and an input of type `actual` has. Raises
    ArgumentError when the input does not fit."""
    if isinstance(kind, TupleType) and isinstance(actual, TupleType) and len(kind.fields) == len(actual.fields):
        for i, (k, a) in enumerate(zip(kind.fields, actual.fields, strict=True)):
            bind_sizes(where, f"{name}.{i}", k, a, sizes)
        return
    if kind is actual or (not isinstance(kind, TensorType) and kind == actual):
        return
    if not isinstance(kind, TensorType) or not isinstance(actual, TensorType) or not _agree_but_for_sizes(kind, actual):
        raise ArgumentError(where, f"input '{name}' is {actual!r}", f"{kind!r}")
    for dim, size in zip(kind.shape, actual.shape, strict=True):
        if isinstance(dim, SymDim) and dim.name is not None:
            dim = sizes.setdefault(dim.name, size)  # type: ignore[arg-type]
        if isinstance(dim, int) and dim != size:
            raise _mismatch(where, name, kind, actual, sizes)


def check_sizes(where: str, name: str, kind: Type, actual: Type, sizes: Sizes) -> None:
    """Raise ArgumentError unless the sizes that `kind` computes from names are those of `actual`."""
    if not isinstance(kind, TensorType) or not isinstance(actual, TensorType):
        return
    for dim, size in zip(kind.shape, actual.shape, strict=True):
        if isinstance(dim, SymDim) and dim.name is None and evaluate(dim, sizes) != size:
            raise _mismatch(where, name, kind, actual, sizes)


def _agree_but_for_sizes(kind: TensorType, actual: TensorType) -> bool:
    return kind.dtype == actual.dtype and kind.ndim == actual.ndim and kind.device is actual.device


def _mismatch(where: str, name: str, kind: TensorType, actual: TensorType, sizes: Sizes) -> ArgumentError:
    used = frozenset[str]().union(*map(names, kind.shape))
    values = ", ".join(f"{n} = {size}" for n, size in sizes.items() if n in used)
    expected = f"{kind!r} with {values}" if values else f"{kind!r}"
    return ArgumentError(where, f"input '{name}' is {actual!r}", expected)
