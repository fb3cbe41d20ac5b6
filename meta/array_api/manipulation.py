"""Manipulation of shapes, and selection by positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.array_api.products import promoted
from meta.errors import TypeInferenceError
from meta.functional._checks import axis_of
from meta.op import rules
from meta.schema._dsl import TensorLike


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[Any, ...]:
    """The shape that shapes broadcast to. Raises TypeInferenceError if there is none."""
    return rules.broadcast_shapes(*map(tuple, shapes))


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Tensors joined along an axis; flattened first if it is None. Dtypes promote."""
    xs = promoted(*arrays)
    return meta.concatenate(xs, axis) if axis is not None else meta.concatenate([_flat(x) for x in xs], 0)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Tensors joined along a new axis. Dtypes promote."""
    return meta.stack(promoted(*arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, without it."""
    return meta.unbind(x, axis)


def reshape(x: Tensor, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Any:
    """The elements in another shape; the same memory, or a copy with `copy=True`."""
    return meta.reshape(meta.copy(x) if copy else x, shape)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements moved along axes, and in at the other end; in row-major order without an axis."""
    if axis is None:
        return meta.reshape(meta.roll(_flat(x), shift, 0), x.shape)
    if isinstance(shift, int) and not isinstance(axis, int):
        shift = (shift,) * len(axis)
    return meta.roll(x, shift, axis)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Any:
    """Each element `repeats` times along an axis; of the flattened tensor without one.

    `repeats` may be a tensor with a number for each element, whose values are needed: not in traced functions."""
    if axis is None:
        x, axis = _flat(x), 0
    if not isinstance(repeats, TensorLike):
        return meta.repeat(x, repeats, axis)
    size = x.shape[axis_of("repeat", axis, x.ndim)]
    if repeats.ndim > 1 or repeats.size not in (1, size):
        raise TypeInferenceError("repeat", f"repeats of shape {repeats.shape}", f"one for each of {size} elements")
    return meta.repeat_interleave(x, meta.cast(repeats, "int64"), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Any:
    """The slices at positions along an axis, which a 1-D tensor may leave out. Negative positions count from the end.

    Raises PositionError for positions out of range, outside of traced functions."""
    if axis is None and x.ndim != 1:
        raise TypeInferenceError("take", f"no axis for shape {x.shape}", "an axis", "pass axis=0")
    return x[(*(slice(None),) * axis_of("take", axis or 0, x.ndim), indices)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Any:
    """For each element of `indices` the element of x at that position along `axis`; the other axes broadcast."""
    return meta.take_along_dim(x, indices, axis)


def _flat(x: Tensor) -> Any:
    return meta.reshape(x, (-1,))
