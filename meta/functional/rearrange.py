"""Selection, division and joining of tensors along axes, and further shapes of the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

import meta
from meta._generated.methods import T, Tensor
from meta.dim import Dim, product, same_dim
from meta.errors import ArgumentError, PositionError
from meta.functional._checks import (
    as_dtype,
    axis_of,
    broadcast_shape,
    distinct_axes,
    promoted,
    require,
    require_rank,
    require_same_device,
    require_same_dtype,
)
from meta.op import rules

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod", "chunk",
    "column_stack", "dsplit", "dstack", "expand", "expand_as", "flatten", "fliplr", "flipud", "hsplit", "hstack",
    "meshgrid", "narrow", "ravel", "rot90", "select", "select_scatter", "slice_scatter", "split_with_sizes",
    "sum_to_size", "tensor_split", "unbind", "unflatten", "unfold", "view_as", "vsplit", "vstack",
]  # fmt: skip
AMP = dict.fromkeys(("block_diag", "cartesian_prod", "meshgrid", "select_scatter", "slice_scatter"), "infer")


# --- a part of a tensor -----------------------------------------------------------------------------------------------


def select(x: T, axis: int, index: int) -> T:
    """The slice at one position of an axis, without that axis. Negative positions count from the end.

    Raises TypeInferenceError for a 0-d tensor or an axis that x does not have, PositionError for a position outside."""
    require_rank("select", x, least=1)
    return x[_index_along(axis_of("select", axis, x.ndim), index)]


def narrow(x: T, axis: int, start: Any, length: int) -> T:
    """`length` elements of an axis from position `start` (an int, or a 0-d integer tensor whose value is read); a
    negative one counts from the end. Raises PositionError unless they lie inside the axis."""
    require_rank("narrow", x, least=1)
    axis = axis_of("narrow", axis, x.ndim)
    size = x.shape[axis]
    if isinstance(start, Tensor):
        value: Any = start
        is_position = value.ndim == 0 and value.dtype.startswith(("int", "uint"))
        require("narrow", is_position, f"start is {value.dtype} of shape {value.shape}", "an int or a 0-d int tensor")
        start = int(value.item())
    first = start + size if start < 0 else start
    inside = f"start and start + length from {-size} to {size}, length 0 or more"
    for holds in (length >= 0, first >= 0, first + length <= size):
        problem = f"start {start} and length {length} on an axis of size {size}"
        require("narrow", holds, problem, inside, error=PositionError)
    return x[_index_along(axis, slice(first, first + length))]


def _index_along(axis: int, item: object) -> tuple[Any, ...]:
    """An index with `item` for an axis."""
    return (*(slice(None),) * axis, item)


def select_scatter(x: T, src: T, axis: int, index: int) -> T:
    """x with the slice at one position of an axis replaced by `src`, which has its shape and the dtype of x.

    Raises TypeInferenceError for another shape or dtype, PositionError for a position outside."""
    require_rank("select_scatter", x, least=1)
    axis = axis_of("select_scatter", axis, x.ndim)
    size = x.shape[axis]
    if not -size <= index < size:
        raise PositionError("select_scatter", f"index {index} on an axis of size {size}", f"{-size} to {size - 1}")
    first = index % size
    row = (*x.shape[:axis], *x.shape[axis + 1 :])
    _require_shape("select_scatter", src, row)
    return _replaced("select_scatter", x, meta.expand_dims(src, axis), axis, first, first + 1, 1)


def slice_scatter(x: T, src: T, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> T:
    """x with x[start:stop:step] of an axis replaced by `src`, which has the shape of that slice and the dtype of x.

    Bounds are as in Python's slices; raises TypeInferenceError for a step of 0 or less, another shape or dtype."""
    require_rank("slice_scatter", x, least=1)
    axis = axis_of("slice_scatter", axis, x.ndim)
    require("slice_scatter", step > 0, f"step is {step}", "1 or more")
    first, last, _ = slice(start, stop, step).indices(x.shape[axis].__index__())
    shape = (*x.shape[:axis], len(range(first, last, step)), *x.shape[axis + 1 :])
    _require_shape("slice_scatter", src, shape)
    return _replaced("slice_scatter", x, src, axis, first, max(first, last), step)


def _require_shape(name: str, src: Tensor, shape: Sequence[Any]) -> None:
    fits = rules.same_shape(tuple(src.shape), tuple(shape))
    require(name, fits, f"'src' has shape {rules.show(src.shape)}", f"{rules.show(tuple(shape))} like the slice")


def _replaced(name: str, x: T, src: T, axis: int, begin: int, end: int, step: int) -> T:
    require_same_dtype(name, x=x, src=src)
    require_same_device(name, x, src)
    lead = (0,) * axis
    return meta.strided_set(x, src, (*lead, begin), (*x.shape[:axis], end), (*(1,) * axis, step))


# --- parts along an axis ----------------------------------------------------------------------------------------------


def unbind(x: T, axis: int = 0) -> tuple[T, ...]:
    """The slices at all positions of an axis, without that axis."""
    require_rank("unbind", x, least=1)
    axis = axis_of("unbind", axis, x.ndim)
    size = x.shape[axis].__index__()
    return tuple(meta.squeeze(part, axis) for part in meta.split(x, size, axis)) if size else ()


def chunk(x: T, chunks: int, axis: int = 0) -> tuple[T, ...]:
    """At most `chunks` parts along an axis, all as large as the first but for the last, which may be smaller."""
    require_rank("chunk", x, least=1)
    require("chunk", chunks > 0, f"chunks is {chunks}", "1 or more")
    axis = axis_of("chunk", axis, x.ndim)
    size = x.shape[axis]
    step = size // chunks
    if step * chunks == size and size != 0:  # also of symbolic sizes
        return meta.split(x, tuple(step * i for i in range(1, chunks)), axis)
    size = size.__index__()
    step = -(-size // chunks)
    return meta.split(x, tuple(range(step, size, step)), axis) if size else meta.split(x, (0,) * (chunks - 1), axis)


def tensor_split(x: T, indices_or_sections: object, axis: int = 0) -> tuple[T, ...]:
    """Parts along an axis: so many, of sizes that differ by at most 1; or those between positions, which follow the
    rules of Python's slices. Both may be a tensor on the CPU, whose values are read."""
    require_rank("tensor_split", x, least=1)
    axis = axis_of("tensor_split", axis, x.ndim)
    size = x.shape[axis].__index__()
    cuts = _positions("tensor_split", indices_or_sections)
    if isinstance(cuts, int):
        require("tensor_split", cuts > 0, f"{cuts} sections", "1 or more")
        return meta.split(x, tuple(size // cuts * i + min(i, size % cuts) for i in range(1, cuts)), axis)
    bounds = list(pairwise([0, *cuts, size]))
    if sorted(cuts) == cuts and all(0 <= cut <= size for cut in cuts):
        return meta.split(x, tuple(cuts), axis)
    return tuple(x[_index_along(axis, slice(first, last))] for first, last in bounds)


def _positions(name: str, value: Any) -> int | list[int]:
    """A number of sections or positions; a tensor by its values."""
    if isinstance(value, Tensor):
        tensor: Any = value
        is_valid = tensor.ndim <= 1 and tensor.dtype == "int64"
        require(name, is_valid, f"a tensor of {tensor.dtype}, shape {tensor.shape}", "int64 of rank 0 or 1")
        value = tensor.tolist()
    return value if isinstance(value, int) else list(value)


def _divided(name: str, x: T, indices_or_sections: int | Sequence[int], axis: int) -> tuple[T, ...]:
    if isinstance(indices_or_sections, int):
        size, count = x.shape[axis], indices_or_sections
        fits = count > 0 and same_dim(size // count * count, size)
        require(name, fits, f"{count} sections of an axis of size {size}", "a divisor of the size")
    return tensor_split(x, indices_or_sections, axis)


def hsplit(x: T, indices_or_sections: int | Sequence[int]) -> tuple[T, ...]:
    """`tensor_split` along axis 1, or axis 0 of a vector; sections are equal."""
    require_rank("hsplit", x, least=1)
    return _divided("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1)


def vsplit(x: T, indices_or_sections: int | Sequence[int]) -> tuple[T, ...]:
    """`tensor_split` along axis 0 of a tensor of rank 2 or more; sections are equal."""
    require_rank("vsplit", x, least=2)
    return _divided("vsplit", x, indices_or_sections, 0)


def dsplit(x: T, indices_or_sections: int | Sequence[int]) -> tuple[T, ...]:
    """`tensor_split` along axis 2 of a tensor of rank 3 or more; sections are equal."""
    require_rank("dsplit", x, least=3)
    return _divided("dsplit", x, indices_or_sections, 2)


def split_with_sizes(x: T, sizes: Sequence[Dim], axis: int = 0) -> tuple[T, ...]:
    """Parts of given sizes along an axis. Raises TypeInferenceError unless they add up to its size."""
    require_rank("split_with_sizes", x, least=1)
    axis = axis_of("split_with_sizes", axis, x.ndim)
    fits = all(size >= 0 for size in sizes if isinstance(size, int)) and same_dim(sum(sizes), x.shape[axis])
    require("split_with_sizes", fits, f"sizes {tuple(sizes)} of an axis of size {x.shape[axis]}",
            "sizes of 0 or more that add up to it")  # fmt: skip
    positions: Any = tuple(accumulate(sizes))[:-1]
    return meta.split(x, positions, axis)


# --- joined tensors ---------------------------------------------------------------------------------------------------


_ADDED_AXES: dict[tuple[int, int], tuple[int, ...]] = {
    (0, 1): (0,), (0, 2): (0, 1), (1, 2): (0,), (0, 3): (0, 1, 2), (1, 3): (0, 2), (2, 3): (2,),
}  # fmt: skip
"""The axes that a tensor gets, by the ranks that it has and should have."""


def atleast_1d(*xs: Tensor) -> Any:
    """Tensors with an axis added to 0-d ones; a tuple of several, the tensor itself of one."""
    return _at_least(1, xs)


def atleast_2d(*xs: Tensor) -> Any:
    """Tensors of rank 2 or more: axes are added in front. A tuple of several, the tensor itself of one."""
    return _at_least(2, xs)


def atleast_3d(*xs: Tensor) -> Any:
    """Tensors of rank 3 or more: vectors become (1, n, 1), matrices (n, m, 1). A tuple of several."""
    return _at_least(3, xs)


def _at_least(rank: int, xs: Sequence[Any]) -> Any:
    expanded = tuple(x if x.ndim >= rank else meta.expand_dims(x, _ADDED_AXES[x.ndim, rank]) for x in _listed(xs))
    return expanded[0] if len(xs) == 1 and isinstance(xs[0], Tensor) else expanded


def _listed(xs: Sequence[Any]) -> Sequence[Any]:
    """Tensors given one by one, or as one list."""
    return xs[0] if len(xs) == 1 and not isinstance(xs[0], Tensor) else xs


def hstack(xs: Sequence[Tensor]) -> Tensor:
    """Tensors joined along axis 1, vectors along axis 0. Dtypes promote."""
    parts = [atleast_1d(x) for x in promoted("hstack", xs)]
    return meta.concatenate(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(xs: Sequence[Tensor]) -> Tensor:
    """Tensors joined along axis 0, vectors as rows. Dtypes promote."""
    return meta.concatenate([atleast_2d(x) for x in promoted("vstack", xs)], 0)


def dstack(xs: Sequence[Tensor]) -> Tensor:
    """Tensors joined along axis 2, after `atleast_3d`. Dtypes promote."""
    return meta.concatenate([atleast_3d(x) for x in promoted("dstack", xs)], 2)


def column_stack(xs: Sequence[Tensor]) -> Tensor:
    """Tensors joined along axis 1, vectors as columns. Dtypes promote."""
    columns = [meta.reshape(x, (-1 if x.ndim else 1, 1)) if x.ndim <= 1 else x for x in promoted("column_stack", xs)]
    return meta.concatenate(columns, 1)


def block_diag(*xs: Tensor) -> Tensor:
    """A matrix with tensors of rank 0 to 2 as blocks on its diagonal, zeros elsewhere. Dtypes promote."""
    if not xs:
        return meta.zeros((1, 0))
    for i, x in enumerate(xs):
        require("block_diag", x.ndim <= 2, f"tensor {i} has shape {rules.show(x.shape)}", "rank 0 to 2")
    blocks = [atleast_2d(x) for x in promoted("block_diag", xs)]
    ends = list(accumulate(block.shape[1] for block in blocks))
    rows = [
        meta.pad(block, (0, 0, end - block.shape[1], ends[-1] - end)) for block, end in zip(blocks, ends, strict=True)
    ]
    return rows[0] if len(rows) == 1 else meta.concatenate(rows, 0)


def meshgrid(*xs: Tensor, indexing: Literal["ij", "xy"] = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: for each vector a tensor of the grid's shape that varies along one axis, with "xy" the
    first two axes swapped. 0-d tensors count as vectors of one element; all have one dtype."""
    vectors = _listed(xs)
    if indexing not in ("xy", "ij"):
        raise ArgumentError("meshgrid", f"indexing is {indexing!r}", '"xy" or "ij"')
    require("meshgrid", len(vectors) > 0, "no tensors", "at least one")
    for i, x in enumerate(vectors):
        require("meshgrid", x.ndim <= 1, f"tensor {i} has shape {rules.show(x.shape)}", "rank 0 or 1")
        require_same_dtype("meshgrid", **{"tensor 0": vectors[0], f"tensor {i}": x} if i else {"tensor 0": x})
    require_same_device("meshgrid", *vectors)
    axes = list(range(len(vectors)))
    if indexing == "xy":
        axes[:2] = axes[:2][::-1]
    shape: list[Any] = [1] * len(vectors)
    for axis, x in zip(axes, vectors, strict=True):
        shape[axis] = product(x.shape)
    return tuple(
        meta.broadcast_to(meta.reshape(x, [product(x.shape) if n == axis else 1 for n in range(len(axes))]), shape)
        for axis, x in zip(axes, vectors, strict=True)
    )


def cartesian_prod(*xs: Tensor) -> Tensor:
    """All combinations of the elements of vectors, as the rows of a matrix; a single vector itself."""
    for i, x in enumerate(xs):
        require("cartesian_prod", x.ndim == 1, f"tensor {i} has shape {rules.show(x.shape)}", "rank 1")
    if len(xs) == 1:
        return xs[0]
    return meta.stack([meta.reshape(grid, (grid.size,)) for grid in meshgrid(*xs)], 1)


# --- shapes -----------------------------------------------------------------------------------------------------------


def flatten(x: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """The axes from start_dim to end_dim as one, whose size is their product; of a 0-d tensor one axis of size 1.

    Raises TypeInferenceError for axes that x does not have or that are not in order."""
    if x.ndim == 0:
        return meta.reshape(x, (1,))
    start, end = (axis_of("flatten", axis, x.ndim) for axis in (start_dim, end_dim))
    require("flatten", start <= end, f"start_dim is {start_dim}, end_dim is {end_dim}", "axes in order")
    return meta.reshape(x, (*x.shape[:start], product(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def ravel(x: T) -> T:
    """The elements in row-major order, with one axis."""
    return meta.reshape(x, (product(x.shape),))


def unflatten(x: T, axis: int, sizes: Sequence[int]) -> T:
    """One axis divided into several, whose sizes have its size as their product; one of them may be -1."""
    require_rank("unflatten", x, least=1)
    require("unflatten", len(sizes) > 0, "sizes is empty", "at least one size")
    axis = axis_of("unflatten", axis, x.ndim)
    fixed = product(size for size in sizes if size != -1)
    unknown = sum(size == -1 for size in sizes)
    size = x.shape[axis]
    fits = fixed == size if not unknown else unknown == 1 and fixed != 0 and same_dim(size // fixed * fixed, size)
    require("unflatten", bool(fits), f"sizes {tuple(sizes)} for an axis of size {size}", "sizes of that product")
    divided = tuple(size // fixed if part == -1 else part for part in sizes)
    return meta.reshape(x, (*x.shape[:axis], *divided, *x.shape[axis + 1 :]))


def expand(x: T, shape: Sequence[int]) -> T:
    """x repeated along axes of size 1 and new leading axes; -1 keeps the size of an axis."""
    added = len(shape) - x.ndim
    require("expand", added >= 0, f"shape {tuple(shape)} for rank {x.ndim}", f"at least {x.ndim} sizes")
    require("expand", all(size != -1 for size in shape[:added]), f"-1 in front of x in {tuple(shape)}",
            "-1 for axes of x only")  # fmt: skip
    full = (*shape[:added], *(d if size == -1 else size for size, d in zip(shape[added:], x.shape, strict=True)))
    return meta.broadcast_to(x, full)


def expand_as(x: T, other: T) -> T:
    """x repeated to the shape of another tensor."""
    return meta.broadcast_to(x, other.shape)


def view_as(x: T, other: T) -> T:
    """The same elements, in row-major order, with the shape of another tensor."""
    return meta.reshape(x, other.shape)


def broadcast_tensors(*xs: T) -> tuple[T, ...]:
    """Tensors broadcast to their common shape."""
    shape = broadcast_shape("broadcast_tensors", *xs)
    return tuple(meta.broadcast_to(x, shape) for x in xs)


def sum_to_size(x: T, shape: Sequence[int]) -> T:
    """x summed over the axes along which `shape` broadcasts to x's shape, in the dtype of x; integers wrap around."""
    return meta.sum_to(x, shape) if x.dtype != "bool" else as_dtype(meta.sum_to(as_dtype(x, "uint8"), shape), "bool")


def flipud(x: T) -> T:
    """The elements in reverse order along axis 0."""
    require_rank("flipud", x, least=1)
    return meta.flip(x, 0)


def fliplr(x: T) -> T:
    """The elements in reverse order along axis 1."""
    require_rank("fliplr", x, least=2)
    return meta.flip(x, 1)


def rot90(x: T, k: int = 1, axes: Sequence[int] = (0, 1)) -> T:
    """Planes of two axes turned k times by 90 degrees, from the first axis towards the second."""
    require("rot90", len(axes) == 2, f"axes {tuple(axes)}", "two of them")
    first, second = distinct_axes("rot90", axes[0], axes[1], x.ndim)
    if k % 2 == 0:
        return meta.flip(x, (first, second)) if k % 4 else meta.copy(x)
    return meta.swap_axis(meta.flip(x, second if k % 4 == 1 else first), first, second)


def unfold(x: Tensor, axis: int, size: int, step: int) -> Any:
    """Windows of `size` elements along an axis, `step` apart: their number in place of the axis, their elements along a
    new last axis (torch.Tensor.unfold). Raises TypeInferenceError for a size beyond the axis's or a step of 0."""
    axis = axis_of("unfold", axis, x.ndim)
    vector = x if x.ndim else meta.reshape(x, (1,))
    length = vector.shape[axis]
    require("unfold", 0 <= size <= length, f"size is {size} for an axis of size {length}", f"0 to {length}")
    require("unfold", step > 0, f"step is {step}", "1 or more")
    count = (length - size) // step + 1
    if size == 0:
        shape = (*vector.shape[:axis], count, *vector.shape[axis + 1 :], 0)
        return meta.zeros(shape if x.ndim else (0,), x.dtype, x.device)
    starts = meta.reshape(meta.arange(0, count, 1, "int64", x.device) * step, (count, 1))
    positions = starts + meta.arange(0, size, 1, "int64", x.device)
    windows = meta.moveaxis(meta.take(vector, positions, axis, "clip"), axis + 1, -1)
    return windows if x.ndim else meta.reshape(windows, (size,))
