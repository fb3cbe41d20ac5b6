"""Operators that fill tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import meta
from meta.op.decomposition import decompose, decomposition


def _full_like(x: Any, value: Any, dtype: str | None) -> Any:
    return meta.full(x.shape, value, dtype or x.dtype, x.device)


_of_shape: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "ones": lambda shape, dtype, device: meta.full(shape, 1, dtype, device),
    "zeros": lambda shape, dtype, device: meta.full(shape, 0, dtype, device),
}
_like: Mapping[str, Callable[[Any, Any], Any]] = {
    "ones_like": lambda x, dtype: _full_like(x, 1, dtype),
    "zeros_like": lambda x, dtype: _full_like(x, 0, dtype),
}
decompose({"full_like": _full_like}, wide=False)
decompose(_of_shape, wide=False)
decompose(_like, wide=False)


@decomposition("one_hot", wide=False)
def one_hot(indices: Any, depth: int, dtype: str, axis: int) -> Any:
    place = axis % (indices.ndim + 1)
    classes = meta.arange(0, depth, 1, "int64", indices.device)
    classes = meta.expand_dims(classes, tuple(range(1, indices.ndim + 1 - place)))
    return meta.cast(meta.equal(meta.expand_dims(meta.cast(indices, "int64"), (place,)), classes), dtype)
