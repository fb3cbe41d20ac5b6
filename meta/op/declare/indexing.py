"""Declarations of operators that read and write elements by position."""

from __future__ import annotations

import itertools
import math
from typing import Any

from meta import dtype as dtypes
from meta.dim import Dim, same_dim, sym
from meta.dtype import is_complex
from meta.ir.type import TensorType
from meta.op import data_dependent, rules
from meta.op.positions import Positions, Rule
from meta.op.registry import declare
from meta.schema import indexing

_unknown = itertools.count()


@declare("strided_slice", schema=indexing.strided_slice, pattern="injective", method=True, complex="analytic")
def strided_slice(x: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]) -> TensorType:
    """x[begin:end:strides] with NumPy's rules for negative and excessive bounds; trailing axes are kept whole."""
    return x.with_shape(_sliced(x, begin, end, strides))


def _sliced(x: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Dim, ...]:
    steps = strides or (1,) * len(begin)
    fits = len(begin) == len(end) == len(steps) and len(begin) <= x.ndim and 0 not in steps
    rules.require(
        fits,
        f"begin={begin}, end={end}, strides={strides} for rank {x.ndim}",
        "one of each an axis, at most as many as the rank, strides not zero",
    )
    sizes = tuple(rules.slice_length(*of_axis) for of_axis in zip(begin, end, steps, x.shape, strict=False))
    return (*sizes, *x.shape[len(begin) :])


@declare("strided_slice_dx", schema=indexing.strided_slice_dx, pattern="injective", complex="analytic")
def strided_slice_dx(
    dy: TensorType, shape: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> TensorType:
    """Gradient of strided_slice: zeros, with dy at the sliced positions."""
    x = dy.with_shape(shape)
    rules.require_same_shape(dy=dy, slice=dy.with_shape(_sliced(x, begin, end, strides)))
    return x


@declare("strided_set", schema=indexing.strided_set, pattern="injective", complex="analytic")
def strided_set(
    x: TensorType, v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> TensorType:
    """x with x[begin:end:strides] replaced by v."""
    rules.same_device(x, v)
    rules.require_same_dtype(x=x, v=v)
    target = _sliced(x, begin, end, strides)
    full = rules.broadcast_shapes(v.shape, target)
    rules.require(
        rules.same_shape(full, target),
        f"'v' has shape {rules.show(v.shape)}",
        f"shapes that broadcast to the slice, {rules.show(target)}",
    )
    return x


@declare("argwhere", schema=indexing.argwhere, amp="keep", method=True,
         resolve=data_dependent.argwhere)  # fmt: skip
def argwhere(x: TensorType, size: tuple[Dim, ...] | None) -> TensorType:
    """The positions of the elements that are not 0, in order: int64, (count, rank).

    Without a size the shape depends on values, and is found out when the call runs."""
    if size is None:
        return x.with_shape((sym(f"argwhere{next(_unknown)}"), x.ndim)).with_dtype("int64")
    (rows,) = size if len(size) == 1 else (-1,)
    is_number = isinstance(rows, int)
    rules.require(not is_number or rows >= 0, f"size is {size}", "one size of 0 and up")
    return x.with_shape((rows, x.ndim)).with_dtype("int64")


def _require_number(name: str, t: TensorType) -> None:
    """Raise TypeInferenceError for bool, which cannot be summed."""
    rules.require(
        t.dtype != "bool", f"'{name}' has dtype bool", "integers and floats", f'cast it: {name}.cast("int32")'
    )


def _require_indices(indices: TensorType, x: TensorType) -> None:
    rules.require(
        dtypes.is_int(indices.dtype),
        f"'indices' has dtype {indices.dtype}",
        f"{', '.join(dtypes.INTS)}",
        'cast it: indices.cast("int64")',
    )
    rules.same_device(x, indices)


def _along(indices: int, axis: int | None, indexed: int | None = 0) -> Rule:
    """The rule of positions along an axis. The arguments are given by their places in the schema: the positions, the
    axis (None: it is axis 0), and the tensor that they are in (None: the result)."""

    def rule(*args: Any, out: Any) -> Positions:
        shape = (out if indexed is None else args[indexed]).shape
        return Positions(indices, (shape[0 if axis is None else args[axis]] if len(shape) else 1,))

    return rule


def _of_take(indexed: int | None) -> Rule:
    """The rule of positions that `take` and its gradient read; `indexed` as above."""

    def rule(*args: Any, out: Any) -> Positions | None:
        *_, axis, mode = args
        shape = (out if indexed is None else args[indexed]).shape
        size = math.prod(shape) if axis is None else shape[axis]
        return Positions(1, (size,), from_end=True) if mode == "raise" else None

    return rule


@declare("take", schema=indexing.take, pattern="injective", method=True, positions=_of_take(0), complex="analytic")
def take(x: TensorType, indices: TensorType, axis: int | None, mode: str) -> TensorType:
    """The elements (axis None) or slices of x at the given positions of an axis, as numpy.take does.

    The axis is replaced by the axes of `indices`. With mode "raise", negative positions count from the end and others
    outside are out of range; "clip" moves them to the nearest inside, "wrap" takes them modulo the size."""
    return x.with_shape(_taken_shape(x, indices, axis))


@declare(
    "index_select",
    schema=indexing.index_select,
    pattern="injective",
    method=True,
    positions=_along(2, 1),
    complex="analytic",
)
def index_select(x: TensorType, axis: int, indices: TensorType) -> TensorType:
    """The slices of x at the given positions of an axis."""
    rules.require_rank("indices", indices, 1)
    rules.require(x.ndim > 0, "the tensor is 0-d", "at least one axis", "reshape it: x.reshape((1,))")
    return x.with_shape(_taken_shape(x, indices, axis))


def _require_elements(size: Dim, indices: TensorType, x: TensorType) -> None:
    """Raise TypeInferenceError for positions in an empty axis."""
    rules.require(
        size != 0 or indices.size == 0,
        f"x of shape {rules.show(x.shape)} is empty where indices point",
        "no positions in an empty axis",
    )


def _taken_shape(x: TensorType, indices: TensorType, axis: int | None) -> tuple[Dim, ...]:
    _require_indices(indices, x)
    if axis is None:
        _require_elements(x.size, indices, x)
        return indices.shape
    rules.require(x.ndim > 0, "the tensor is 0-d", "at least one axis", "use axis=None")
    axis = rules.axis_index(axis, x.ndim)
    _require_elements(x.shape[axis], indices, x)
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@declare("take_dx", schema=indexing.take_dx, amp="never", positions=_of_take(None), complex="analytic")
def take_dx(dy: TensorType, indices: TensorType, shape: tuple[int, ...], axis: int | None, mode: str) -> TensorType:
    """Gradient of take: each element of dy added at the position it was taken from."""
    _require_number("dy", dy)
    x = dy.with_shape(shape)
    rules.require_same_shape(dy=dy, taken=dy.with_shape(_taken_shape(x, indices, axis)))
    return x


@declare("gather", schema=indexing.gather, pattern="injective", method=True, positions=_along(2, 1), complex="analytic")
def gather(x: TensorType, axis: int, indices: TensorType) -> TensorType:
    """For each element of `indices`, the element of x at that position along `axis`, as torch.gather does.

    result[i][j] = x[i][indices[i][j]] for axis 1 and rank 2. Along the other axes `indices` may be smaller
    than x."""
    _gathered(x, axis, indices)
    return x.with_shape(indices.shape)


def _gathered(x: TensorType, axis: int, indices: TensorType) -> None:
    _require_indices(indices, x)
    rules.require(x.ndim == indices.ndim, f"'x' has rank {x.ndim}, 'indices' {indices.ndim}", "equal ranks")
    axis = rules.axis_index(axis, x.ndim)
    if x.ndim:
        _require_elements(x.shape[axis], indices, x)
    for i, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
        small = isinstance(size, int) and isinstance(count, int) and count <= size
        rules.require(
            i == axis or small or same_dim(size, count),
            f"indices of shape {rules.show(indices.shape)} for x of shape {rules.show(x.shape)}",
            f"no larger than x except along axis {axis}",
        )


@declare("gather_dx", schema=indexing.gather_dx, amp="never", positions=_along(2, 1, None), complex="analytic")
def gather_dx(dy: TensorType, axis: int, indices: TensorType, shape: tuple[int, ...]) -> TensorType:
    """Gradient of gather: each element of dy added at the position it was taken from."""
    _require_number("dy", dy)
    x = dy.with_shape(shape)
    _gathered(x, axis, indices)
    rules.require_same_shape(dy=dy, indices=indices)
    return x


def _coordinates(indexed: int | None, gathered: int | None, batch_dims: int | None = None) -> Rule:
    """The rule of coordinates, argument 1: a slice for each axis of the indexed tensor that is not in the gathered one,
    after the first `batch_dims`. All are positions in the schema, None for the result (0 for `batch_dims`)."""

    def rule(*args: Any, out: Any) -> Positions:
        whole, part = ((out if i is None else args[i]).shape for i in (indexed, gathered))
        first = 0 if batch_dims is None else args[batch_dims]
        count = len(whole) - first - (len(part) - len(args[1].shape) + 1)
        return Positions(1, tuple(whole[first : first + count]))

    return rule


@declare(
    "gather_nd", schema=indexing.gather_nd, pattern="injective", positions=_coordinates(0, None, 2), complex="analytic"
)
def gather_nd(x: TensorType, indices: TensorType, batch_dims: int) -> TensorType:
    """The elements or slices of x at given coordinates: result[i...] = x[indices[0, i...], ..., indices[m-1, i...]].

    With batch_dims b, result[i, j...] = x[i, indices[0, i, j...], ...] for the first b axes i."""
    return x.with_shape(_gathered_nd(x, indices, batch_dims))


def _gathered_nd(x: TensorType, indices: TensorType, batch_dims: int = 0) -> tuple[Dim, ...]:
    _require_indices(indices, x)
    shapes = f"indices of shape {rules.show(indices.shape)} for x of shape {rules.show(x.shape)}"
    rules.require(
        0 <= batch_dims < max(indices.ndim, 1)
        and rules.same_shape(indices.shape[1 : 1 + batch_dims], x.shape[:batch_dims]),
        f"{shapes}, batch_dims {batch_dims}",
        "as many equal axes, after the first axis of indices and in front of x",
    )
    count = indices.shape[0].__index__() if indices.ndim else 0
    rules.require(
        1 <= count <= x.ndim - batch_dims,
        shapes,
        "at least one and at most as many coordinates (first axis of indices) as axes of x",
    )
    for size in x.shape[batch_dims : batch_dims + count]:
        _require_elements(size, indices, x)
    return (*indices.shape[1:], *x.shape[batch_dims + count :])


@declare(
    "gather_nd_dx", schema=indexing.gather_nd_dx, amp="never", positions=_coordinates(None, 0, 3), complex="analytic"
)
def gather_nd_dx(dy: TensorType, indices: TensorType, shape: tuple[int, ...], batch_dims: int) -> TensorType:
    """Gradient of gather_nd: each element of dy added at the position it was taken from."""
    _require_number("dy", dy)
    x = dy.with_shape(shape)
    taken = dy.with_shape(_gathered_nd(x, indices, batch_dims))
    rules.require_same_shape(dy=dy, taken=taken)
    return x


@declare("scatter_add", schema=indexing.scatter_add, method=True, positions=_along(2, 1), complex="analytic")
def scatter_add(x: TensorType, axis: int, indices: TensorType, src: TensorType) -> TensorType:
    """x with each element of src added at its position along `axis`, given by `indices`, as torch.scatter_add does."""
    return _scattered(x, axis, indices, src, "add")


@declare(
    "scatter_elements",
    schema=indexing.scatter_elements,
    method=True,
    positions=_along(2, 1),
    complex="analytic",
)
def scatter_elements(x: TensorType, axis: int, indices: TensorType, src: TensorType, reduction: str) -> TensorType:
    """x with each element of src written at its position along `axis`, given by `indices`, in order.

    y[i][indices[i][j]] = src[i][j] for axis 1, rank 2 and reduction "update"; other reductions combine it with the
    present value."""
    return _scattered(x, axis, indices, src, reduction)


def _scattered(x: TensorType, axis: int, indices: TensorType, src: TensorType, reduction: str) -> TensorType:
    _gathered(x, axis, indices)
    rules.require_same_shape(src=src, indices=indices)
    return _put(x, src, reduction)


def _put(x: TensorType, src: TensorType, reduction: str) -> TensorType:
    if reduction != "update":
        _require_number("x", x)
    combines = reduction in ("update", "add") or not is_complex(x.dtype)
    rules.require(combines, f"reduction is {reduction!r} of {x.dtype}", "'update' or 'add' of complex numbers")
    rules.same_device(x, src)
    rules.require_same_dtype(x=x, src=src)
    return x


@declare(
    "scatter_nd",
    schema=indexing.scatter_nd,
    positions=_coordinates(0, 2),
    complex="analytic",
)
def scatter_nd(x: TensorType, indices: TensorType, src: TensorType, reduction: str) -> TensorType:
    """x with each element or slice of src written at given coordinates, in order: y[indices[0, i...], ..., indices[m-1,
    i...]] = src[i...] for reduction "update"; other reductions combine it with the present value."""
    rules.require_same_shape(src=src, places=src.with_shape(_gathered_nd(x, indices)))
    return _put(x, src, reduction)


@declare(
    "embedding",
    schema=indexing.embedding,
    pattern="injective",
    positions=_along(1, None),
    complex="analytic",
)
def embedding(weight: TensorType, indices: TensorType) -> TensorType:
    """The rows of a table at the given positions, of shape indices.shape + weight.shape[1:]."""
    rules.require(
        not dtypes.is_int(weight.dtype) or dtypes.is_int(indices.dtype),
        f"'weight' is {weight.dtype}, 'indices' are {indices.dtype}",
        "a table, then integer indices",
        "swap them: meta.embedding(weight, indices)",
    )
    return weight.with_shape(_taken_shape(weight, indices, 0))


@declare(
    "embedding_dx",
    schema=indexing.embedding_dx,
    amp="never",
    positions=_along(1, None, None),
    complex="analytic",
)
def embedding_dx(dy: TensorType, indices: TensorType, num_weight: int) -> TensorType:
    """Gradient of embedding: the rows of dy added up by position, (num_weight, ...)."""
    _require_indices(indices, dy)
    _require_number("dy", dy)
    lead = indices.ndim
    rules.require(
        dy.ndim >= lead and rules.same_shape(dy.shape[:lead], indices.shape),
        f"'dy' has shape {rules.show(dy.shape)}, 'indices' {rules.show(indices.shape)}",
        "a shape of dy that begins with the shape of indices",
    )
    table = dy.with_shape((num_weight, *dy.shape[lead:]))
    _require_elements(num_weight, indices, table)
    return table
