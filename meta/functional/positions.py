"""Functions whose results are positions, or that pick elements by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import product
from meta.dtype import Number
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, TraceError
from meta.functional._checks import as_dtype, axis_of, promoted, require, require_rank, require_same_device
from meta.op import rules

__all__ = [
    "bucketize", "count_nonzero", "isin", "nonzero", "repeat_interleave", "searchsorted", "take_along_dim",
]  # fmt: skip


def known_number(name: str, value: Tensor, kind: type = int) -> Any:
    """The value of a 0-d tensor on which the result's shape or steps depend. Raises TraceError in traced programs."""
    if isinstance(value, NDArray):
        return kind(value.item())
    raise TraceError(
        name,
        "the shape of the result depends on values",
        "a result of known shape in a program",
        "give it a size, or call it outside of one",
    )


def tensor_of(value: Tensor | Number, like: Any) -> Any:
    """A number as a 0-d tensor of the dtype that it promotes `like` to; tensors as they are."""
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        return value
    return meta.full((), value, dtypes.promote_scalar(like.dtype, value), like.device)


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, side: Literal["left", "right"] | None = None,
    sorter: Tensor | None = None, dtype: Literal["int32", "int64"] = "int64",
) -> Any:  # fmt: skip
    """How many elements of an ascending sequence (the last axis) are less than each value, or not greater (right): the
    places where the values would be put. The leading axes of both agree, or the sequence is 1-D.

    values: a tensor, or a number (the result is 0-d).  side: "left" or "right", in place of `right`.
    sorter: positions that sort the sequence, of its shape, int64."""
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError("searchsorted", f"side is {side!r} and right {right}", '"left", "right" or None')
    if dtype not in ("int32", "int64"):
        raise ArgumentError("searchsorted", f"dtype is {dtype!r}", '"int32" or "int64"')
    if isinstance(values, (bool, int, float)):
        require("searchsorted", sorted_sequence.ndim == 1,
                f"a number for a sequence of rank {sorted_sequence.ndim}", "a 1-D sequence")  # fmt: skip
    require_rank("searchsorted", sorted_sequence, least=1)
    sequence, values_array = promoted("searchsorted", [sorted_sequence, tensor_of(values, sorted_sequence)])
    if sorter is not None:
        fits = rules.same_shape(tuple(sorter.shape), tuple(sequence.shape)) and sorter.dtype == "int64"
        problem = f"sorter is {sorter.dtype} of shape {rules.show(sorter.shape)}"
        require("searchsorted", fits, problem, f"int64 of shape {rules.show(sequence.shape)}")
        sequence = meta.gather(sequence, -1, sorter)
    lead = tuple(sequence.shape[:-1])
    shapes = f"a sequence of shape {rules.show(sequence.shape)} and values of {rules.show(values_array.shape)}"
    fits = not lead or (values_array.ndim == sequence.ndim and rules.same_shape(lead, tuple(values_array.shape[:-1])))
    require("searchsorted", fits, shapes, "equal leading axes, or a 1-D sequence")
    return as_dtype(meta.binary_search(sequence, values_array, right or side == "right"), dtype)


def bucketize(x: Tensor, boundaries: Tensor, right: bool = False, dtype: Literal["int32", "int64"] = "int64") -> Tensor:
    """The number of the interval between ascending boundaries, a vector, in which each element lies: boundaries[i - 1]
    < x <= boundaries[i], or with `right` <= on the left and < on the right."""
    require("bucketize", boundaries.ndim == 1, f"boundaries have shape {rules.show(boundaries.shape)}", "rank 1")
    return searchsorted(boundaries, x, right, dtype=dtype)


def isin(x: Tensor | Number, elements: Tensor | Number, invert: bool = False) -> Tensor:
    """Whether each element of x is among `elements` (or, inverted, is not), as bool. One of them may be a number."""
    if not isinstance(x, Tensor) and not isinstance(elements, Tensor):
        raise ArgumentError("isin", "both arguments are numbers", "at least one tensor", "use meta.array(x)")
    values, candidates = promoted("isin", [tensor_of(x, elements), tensor_of(elements, x)])
    if not product(candidates.shape):
        return meta.full(values.shape, invert, "bool", values.device)
    ordered = meta.sort(meta.reshape(candidates, (product(candidates.shape),)), 0)
    places = meta.minimum(meta.binary_search(ordered, values), product(candidates.shape) - 1)
    nearest = meta.take(ordered, places, 0, "clip")
    return meta.not_equal(nearest, values) if invert else meta.equal(nearest, values)


def nonzero(x: T) -> tuple[T, ...]:
    """The positions of the elements that are not 0, in row-major order: one int64 vector an axis. A 0-d tensor is
    taken for a vector. In traced programs their size is a symbol, as for `argwhere`."""
    vector = x if x.ndim else meta.reshape(x, (1,))
    return tuple(meta.squeeze(part, 1) for part in meta.split(meta.argwhere(vector), vector.ndim, 1))


def count_nonzero(x: T, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> T:
    """The number of elements that are not 0 along axes (None: all), as int64."""
    return meta.sum(x if x.dtype == "bool" else meta.not_equal(x, 0), axis, keepdims)


def take_along_dim(x: T, indices: T, axis: int | None = None) -> T:
    """For each element of `indices` the element of x at that position along an axis, where negative ones count from the
    end; the other axes broadcast. Without an axis, of the flattened x by the flattened indices."""
    is_int = dtypes.is_int(indices.dtype)
    require("take_along_dim", is_int, f"indices have dtype {indices.dtype}", ", ".join(dtypes.INTS))
    if axis is None:
        x, indices, axis = meta.reshape(x, (product(x.shape),)), meta.reshape(indices, (product(indices.shape),)), 0
    ranks = f"'x' has rank {x.ndim}, 'indices' {indices.ndim}"
    require("take_along_dim", x.ndim == indices.ndim, ranks, "equal ranks")
    axis = axis_of("take_along_dim", axis, x.ndim)
    if not x.ndim:
        return meta.gather(x, 0, meta.where(meta.less(indices, 0), indices + 1, indices))
    size, count = x.shape[axis], indices.shape[axis]
    with_one = [(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, indices)]
    others = rules.broadcast_shapes(*with_one)
    x = meta.broadcast_to(x, (*others[:axis], size, *others[axis + 1 :]))
    indices = meta.broadcast_to(indices, (*others[:axis], count, *others[axis + 1 :]))
    return meta.gather(x, axis, meta.where(meta.less(indices, 0), indices + size, indices))


def repeat_interleave(x: Tensor, repeats: Tensor | int, axis: int | None = None) -> Tensor:
    """Each element repeated along an axis; of the flattened x without one.

    repeats: an int, or a tensor with the number for each element or for all (whose values are read: TraceError in
    traced programs)."""
    if axis is None or not x.ndim:
        require("repeat_interleave", axis in (None, 0, -1), f"axis {axis} of a 0-d tensor", "0, -1 or None")
        x, axis = meta.reshape(x, (product(x.shape),)), 0
    axis = axis_of("repeat_interleave", axis, x.ndim)
    if not isinstance(repeats, Tensor):
        return meta.repeat(x, repeats, axis)
    counts: Any = repeats
    size = x.shape[axis]
    require("repeat_interleave", counts.dtype in ("int32", "int64"), f"repeats have dtype {counts.dtype}",
            "int32, int64")  # fmt: skip
    fits = counts.ndim <= 1 and (product(counts.shape) in (1, size))
    shape = f"repeats have shape {rules.show(counts.shape)}"
    require("repeat_interleave", fits, shape, f"one number, or one for each of {size} elements")
    require_same_device("repeat_interleave", x, counts)
    each = meta.broadcast_to(meta.reshape(counts, (product(counts.shape),)), (size,))
    if not size:
        return meta.copy(x)
    least = known_number("repeat_interleave", meta.min(each))
    require("repeat_interleave", least >= 0, f"repeats contain {least}", "zero or more")
    ends = meta.cumsum(each, 0)
    total = known_number("repeat_interleave", ends[-1])
    positions = meta.binary_search(ends, meta.arange(0, total, 1, "int64", x.device), right=True)
    return meta.take(x, positions, axis, "clip")
