"""Writes at positions given by tensors or masks, as new tensors: index_add, index_put, masked_fill, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import product, same_dim
from meta.dtype import Number
from meta.eager.indexing import int64_positions
from meta.errors import ArgumentError
from meta.functional._axes import along
from meta.functional._checks import (
    as_dtype,
    axis_of,
    broadcast_shape,
    require,
    require_factors,
    require_same_device,
    require_same_dtype,
)
from meta.functional.positions import nonzero
from meta.op import rules

__all__ = [
    "index_add", "index_copy", "index_fill", "index_put", "index_reduce", "masked_fill", "masked_scatter",
    "masked_select", "put", "scatter", "scatter_reduce",
]  # fmt: skip
AMP = "infer"

Reduction = Literal["sum", "prod", "mean", "amin", "amax"]
_COMBINED: Mapping[str, Literal["add", "mul", "min", "max"]] = {
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amin": "min",
    "amax": "max",
}


# --- along one axis ---------------------------------------------------------------------------------------------------


def index_add(x: T, axis: int, indices: T, src: T, alpha: float = 1) -> T:
    """x with `alpha` times the slices of src added at positions of an axis. indices: a vector; src: as many slices."""
    x1, axis, vector, values = _slices("index_add", x, axis, indices, src)
    require_factors("index_add", x, alpha=alpha)
    values = values if alpha == 1 else values * alpha
    if x.dtype == "bool":
        x1, values = as_dtype(x1, "uint8"), as_dtype(values, "uint8")
        return as_dtype(_like(_with_slices(x1, axis, vector, values, "max"), x), "bool")
    return _like(_with_slices(x1, axis, vector, values, "add"), x)


def index_copy(x: T, axis: int, indices: T, src: T) -> T:
    """x with the slices of src written at positions of an axis. indices: a vector; src: as many slices."""
    x1, axis, vector, values = _slices("index_copy", x, axis, indices, src)
    return _like(_with_slices(x1, axis, vector, values, "update"), x)


def _like(result: T, x: T) -> T:
    """The result for x, which may be 0-d, from that for one axis."""
    return result if x.ndim else meta.reshape(result, ())


def _with_slices(x: Any, axis: int, vector: Any, src: Any, how: Any) -> Any:
    """x with the slices of src combined into those at positions of an axis. Slices of adjacent elements are written as
    rows; of other ones, each element gets its position, unless fewer elements are moved to make rows."""
    if axis == 0:
        return meta.scatter_nd(x, meta.expand_dims(vector, 0), src, how)
    if all(isinstance(d, int) for d in (*x.shape, vector.shape[0])):
        size, count, rest = x.shape[axis], vector.shape[0], x.shape[axis + 1 :]
        outer = product(x.shape[:axis])
        if product(rest) > 1 or outer == 1:
            starts = meta.arange(0, outer * size, max(size, 1), "int64", x.device)[:outer]
            places = meta.reshape(meta.expand_dims(starts, 1) + as_dtype(vector, "int64"), (outer * count,))
            rows = meta.reshape(x, (outer * size, *rest)), meta.reshape(src, (outer * count, *rest))
            return meta.reshape(_with_slices(rows[0], 0, places, rows[1], how), x.shape)
        if count > size:
            moved = _with_slices(meta.moveaxis(x, axis, 0), 0, vector, meta.moveaxis(src, axis, 0), how)
            return meta.moveaxis(moved, 0, axis)
    return meta.scatter_elements(x, axis, _spread(vector, axis, src.shape), src, how)


def index_fill(x: Tensor, axis: int, indices: Tensor, value: Tensor | Number) -> Tensor:
    """x with one value, a number or a 0-d tensor, at positions of an axis."""
    x1, axis, vector = _positions("index_fill", x, axis, indices)
    fill = _scalar("index_fill", value, x)
    if not vector.size:
        return meta.copy(x)
    ones = meta.ones(vector.shape, "uint8", x.device)
    mask = meta.scatter_elements(meta.zeros((x1.shape[axis],), "uint8", x.device), 0, vector, ones)
    return meta.reshape(meta.where(meta.cast(along(mask, axis, x1.ndim), "bool"), fill, x1), x.shape)


def index_reduce(
    x: Tensor, axis: int, indices: Tensor, src: Tensor, reduction: Literal["prod", "mean", "amin", "amax"],
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """x with the slices of src combined into those at positions of an axis; `include_self`: with what x has there."""
    _require_reduction("index_reduce", reduction, ("prod", "mean", "amin", "amax"))
    x1, axis, places, values = _along("index_reduce", x, axis, indices, src)
    return meta.reshape(_reduced(x1, axis, places, values, reduction, include_self), x.shape)


def _along(name: str, x: Tensor, axis: int, indices: Tensor, src: Tensor) -> tuple[Any, int, Any, Any]:
    """x and src with at least one axis, the axis counted from the front, and the position of each element of src."""
    x1, axis, vector, values = _slices(name, x, axis, indices, src)
    return x1, axis, _spread(vector, axis, values.shape), values


def _spread(vector: Any, axis: int, shape: tuple[Any, ...]) -> Any:
    """The positions of slices for each element of these."""
    return meta.broadcast_to(
        meta.reshape(vector, [vector.shape[0] if n == axis else 1 for n in range(len(shape))]), shape
    )


def _slices(name: str, x: Tensor, axis: int, indices: Tensor, src: Tensor) -> tuple[Any, int, Any, Any]:
    """x and src with at least one axis, the axis counted from the front, and the positions of the slices of src."""
    require_same_dtype(name, x=x, src=src)
    x1, axis, vector = _positions(name, x, axis, indices)
    values = src if src.ndim else meta.reshape(src, (1,))
    require_same_device(name, x, src)
    shape = (*x1.shape[:axis], vector.shape[0], *x1.shape[axis + 1 :])
    fits = rules.same_shape(tuple(values.shape), shape)
    require(name, fits, f"'src' has shape {rules.show(src.shape)}", f"{rules.show(shape)}, a slice for each position")
    return x1, axis, vector, values


def _positions(name: str, x: Tensor, axis: int, indices: Tensor) -> tuple[Any, int, Any]:
    """x with at least one axis, the axis counted from the front, and the positions as a vector."""
    axis = axis_of(name, axis, x.ndim)
    require(name, indices.ndim <= 1, f"indices have shape {rules.show(indices.shape)}", "rank 0 or 1")
    is_int = indices.dtype in ("int32", "int64")
    require(name, is_int, f"indices have dtype {indices.dtype}", "int32, int64", 'cast them: indices.cast("int64")')
    require_same_device(name, x, indices)
    return (x if x.ndim else meta.reshape(x, (1,))), axis, (indices if indices.ndim else meta.reshape(indices, (1,)))


def scatter(
    x: Tensor, axis: int, indices: Tensor, src: Tensor | Number, reduction: Literal["update", "sum", "prod"] = "update"
) -> Tensor:
    """x with each element of src, or a number, written at its position along an axis, given by `indices`; or added
    to, or multiplied into, what is there. src may be larger than `indices`: elements beyond are left out."""
    _require_reduction("scatter", reduction, ("update", "sum", "prod"))
    if not isinstance(src, Tensor):
        values = meta.broadcast_to(_scalar("scatter", src, x), indices.shape)
    else:
        values = _cropped("scatter", src, indices)
    require_same_dtype("scatter", x=x, src=values)
    if not product(indices.shape):
        return meta.copy(x)
    if x.dtype == "bool" and reduction != "update":
        return _of_bytes(x, axis, indices, values, "max" if reduction == "sum" else "min")
    return meta.scatter_elements(x, axis, indices, values, _COMBINED.get(reduction, "update"))


def scatter_reduce(
    x: Tensor, axis: int, indices: Tensor, src: Tensor, reduction: Reduction, include_self: bool = True
) -> Tensor:
    """x with each element of src combined into its position along an axis, given by `indices`; `include_self`: with
    what x has there. src may be larger than `indices`. Means of integers are rounded down."""
    _require_reduction("scatter_reduce", reduction, tuple(_COMBINED))
    axis_of("scatter_reduce", axis, x.ndim)
    require_same_dtype("scatter_reduce", x=x, src=src)
    values = _cropped("scatter_reduce", src, indices)
    return _reduced(x, axis, indices, values, reduction, include_self) if product(indices.shape) else meta.copy(x)


def _require_reduction(name: str, reduction: str, reductions: Sequence[str]) -> None:
    if reduction not in reductions:
        raise ArgumentError(name, f"reduction is {reduction!r}", ", ".join(map(repr, reductions)))


def _cropped(name: str, src: T, indices: T) -> T:
    """src without the elements that have no position. Raises TypeInferenceError where it is smaller than `indices`."""
    if rules.same_shape(src.shape, indices.shape):
        return src
    larger = src.ndim == indices.ndim and all(
        same_dim(a, b) or a >= b for a, b in zip(src.shape, indices.shape, strict=True)
    )
    shapes = f"'src' has shape {rules.show(src.shape)}, 'indices' {rules.show(indices.shape)}"
    require(name, larger or not product(indices.shape), shapes, "src at least as large along every axis")
    if not larger:
        return src
    sizes = zip(src.shape, indices.shape, strict=True)
    return src[tuple(slice(None) if same_dim(a, b) else slice(0, b) for a, b in sizes)]


def _reduced(x: Tensor, axis: int, places: Tensor, values: Tensor, reduction: str, include_self: bool) -> Tensor:
    if x.dtype == "bool":
        require("scatter_reduce", reduction != "mean", "means of bool", "numbers", 'cast it: x.cast("int64")')
        combine = "max" if reduction in ("sum", "amax") else "min"
        start = x if include_self else _started(x, axis, places, combine == "min")
        return _of_bytes(start, axis, places, values, combine)
    start = x
    if not include_self:
        start = _started(x, axis, places, _neutral(reduction, x.dtype))
    total = meta.scatter_elements(start, axis, places, values, _COMBINED[reduction])
    if reduction != "mean":
        return total
    counts = meta.ones_like(x, "int64") if include_self else _started(meta.ones_like(x, "int64"), axis, places, 0)
    counts = meta.maximum(meta.scatter_add(counts, axis, places, meta.ones_like(values, "int64")), 1)
    if dtypes.is_float(x.dtype):
        return total / meta.cast(counts, x.dtype)
    return meta.floor_divide(total, meta.cast(counts, x.dtype))


def _started(x: Tensor, axis: int, places: Tensor, value: Number) -> Tensor:
    """x with one value where elements will be combined."""
    return meta.scatter_elements(x, axis, places, meta.full(places.shape, value, x.dtype, x.device))


def _neutral(reduction: str, dtype: str) -> Any:
    """The value that a reduction starts from."""
    if reduction in ("sum", "mean", "prod"):
        return int(reduction == "prod")
    if dtypes.is_float(dtype):
        return float("inf") if reduction == "amin" else -float("inf")
    return dtypes.int_range(dtype)[reduction == "amin"]


def _of_bytes(x: T, axis: int, places: T, values: T, combine: Literal["min", "max"]) -> T:
    """A scatter of bools, which have no arithmetic, as one of bytes."""
    x, values = as_dtype(x, "uint8"), as_dtype(values, "uint8")
    return as_dtype(meta.scatter_elements(x, axis, places, values, combine), "bool")


def _scalar(name: str, value: Tensor | Number, x: Tensor) -> Tensor:
    """A number or 0-d tensor as a 0-d tensor of the dtype of x."""
    if not isinstance(value, Tensor):
        kind = dtypes.scalar_category(value)
        fits = kind < 2 or kind <= dtypes.category(x.dtype)
        require(
            name, fits, f"value is {value} for x of {x.dtype}", "an int" if kind == 2 else "a real number", "cast x"
        )
        return meta.full((), value, x.dtype, x.device)
    tensor: Any = value
    require(name, tensor.ndim == 0, f"'value' has shape {rules.show(tensor.shape)}", "a number or a 0-d tensor")
    fits = dtypes.category(tensor.dtype) <= dtypes.category(x.dtype)
    require(name, fits, f"value is {tensor.dtype} for x of {x.dtype}", "a dtype of the kind of x's", "cast x")
    return as_dtype(tensor, x.dtype)


# --- anywhere ---------------------------------------------------------------------------------------------------------


def put(x: T, indices: T, src: T, accumulate: bool = False) -> T:
    """x with the elements of src written at positions of the flattened x (negative ones count from the end), or added
    to it. src has as many elements as `indices`."""
    require_same_dtype("put", x=x, src=src)
    require_same_device("put", x, indices, src)
    is_int = indices.dtype == "int64"
    require("put", is_int, f"indices have dtype {indices.dtype}", "int64", 'cast them: indices.cast("int64")')
    fits = product(indices.shape) == product(src.shape)
    shapes = f"indices have shape {rules.show(indices.shape)}, src {rules.show(src.shape)}"
    require("put", fits, shapes, "as many elements of both")
    if not product(indices.shape):
        return meta.copy(x)
    size = product(x.shape)
    places = _from_start(meta.reshape(indices, (product(indices.shape),)), size)
    values = meta.reshape(src, places.shape)
    flat = meta.reshape(x, (size,))
    return meta.reshape(meta.scatter_elements(flat, 0, places, values, "add" if accumulate else "update"), x.shape)


def _from_start(indices: T, size: Any) -> T:
    """Positions counted from the start, from positions that count from the end if they are negative."""
    return meta.where(meta.less(indices, 0), indices + size, indices)


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """x with x[indices] replaced by `values`, which broadcast to it, or with them added.

    indices: an integer tensor, a bool mask (whose values are read) or None for each of the first axes; integer tensors
    broadcast, negative positions count from the end. Raises TypeInferenceError for values that do not broadcast, for
    another dtype than x's, and for more indices than axes."""
    require_same_dtype("index_put", x=x, values=values)
    if accumulate and x.dtype == "bool":  # true where any is
        counts = index_put(as_dtype(x, "int64"), indices, as_dtype(values, "int64"), True)
        return as_dtype(counts, "bool")
    items = _expanded_masks("index_put", x, indices)
    axes = [n for n, item in enumerate(items) if item is not None]
    if not axes:
        full = meta.broadcast_to(values, x.shape)
        return x + full if accumulate else full
    shape = broadcast_shape("index_put", *(items[n] for n in axes))
    order = (*axes, *(n for n in range(x.ndim) if n not in axes))
    is_moved = order != tuple(range(x.ndim))
    moved = meta.transpose(x, order) if is_moved else x
    places = [meta.broadcast_to(_from_start(int64_positions(items[n]), x.shape[n]), shape) for n in axes]
    rest = tuple(moved.shape[len(axes) :])
    # The axes of the positions are where the first index is if the indices are neighbours, else in front.
    lead = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    target = (*rest[:lead], *shape, *rest[lead:])
    fits = values.ndim <= len(target) and all(
        a in (1, b) for a, b in zip(values.shape[::-1], target[::-1], strict=False)
    )
    require("index_put", fits, f"values of shape {rules.show(values.shape)} for {rules.show(target)}",
            "shapes that broadcast")  # fmt: skip
    src = values if rules.same_shape(tuple(values.shape), target) else meta.broadcast_to(values, target)
    if not product(target):
        return meta.copy(x)
    src = meta.moveaxis(src, tuple(range(lead, lead + len(shape))), tuple(range(len(shape)))) if lead else src
    how = "add" if accumulate else "update"
    written = meta.scatter_nd(moved, meta.stack(places, 0), src, how)
    return meta.transpose(written, tuple(order.index(n) for n in range(x.ndim))) if is_moved else written


def _expanded_masks(name: str, x: Tensor, indices: Sequence[Tensor | None]) -> list[Any]:
    """One integer tensor or None for each of the first axes: a mask becomes the positions of its true elements."""
    items: list[Any] = []
    for item in indices:
        if item is None or item.dtype not in ("bool", "uint8"):
            items.append(item)
            continue
        sizes = tuple(x.shape[len(items) : len(items) + item.ndim])
        shapes = f"a mask of shape {rules.show(item.shape)} for axes of sizes {rules.show(sizes)}"
        require(name, rules.same_shape(tuple(item.shape), sizes), shapes, "equal sizes")
        items.extend(nonzero(item))
    require(name, len(items) <= x.ndim, f"{len(items)} indices for rank {x.ndim}", f"at most {x.ndim}")
    for item in items:
        is_int = item is None or dtypes.is_int(item.dtype)
        require(name, is_int, "an index is " + ("" if item is None else item.dtype), "integers and bool")
    return items


# --- by masks ---------------------------------------------------------------------------------------------------------


def masked_fill(x: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """x with a value, a number or a 0-d tensor, where a mask is true. Mask and x broadcast."""
    _require_mask("masked_fill", mask)
    return meta.where(mask, _scalar("masked_fill", value, x), x)


def masked_select(x: T, mask: T) -> T:
    """The elements of x where a mask is true, in row-major order, as a vector. Mask and x broadcast.

    Raises TraceError in traced programs: the size depends on values."""
    _require_mask("masked_select", mask)
    shape = broadcast_shape("masked_select", x, mask)
    flat = meta.reshape(meta.broadcast_to(x, shape), (product(shape),))
    (places,) = nonzero(meta.reshape(meta.broadcast_to(mask, shape), flat.shape))
    return meta.take(flat, places, 0)


def masked_scatter(x: T, mask: T, src: T) -> T:
    """x with the first elements of src, in row-major order, one after the other where a mask is true. The mask
    broadcasts to x. Raises TypeInferenceError if src has fewer elements than the mask selects, unless tracing."""
    _require_mask("masked_scatter", mask)
    require_same_dtype("masked_scatter", x=x, src=src)
    require_same_device("masked_scatter", x, mask, src)
    shape = broadcast_shape("masked_scatter", x, mask)
    full = meta.broadcast_to(mask, shape)
    order = meta.cumsum(meta.reshape(full, (product(shape),)), 0)
    available = product(src.shape)
    if isinstance(order, meta.NDArray) and order.size:
        source_count = int(order[-1].item())
        require(
            "masked_scatter",
            source_count <= available,
            f"src has {available} elements for {source_count}",
            "as many or more",
        )
    if available == 0:
        return meta.copy(meta.broadcast_to(x, shape))
    places = meta.maximum(meta.reshape(order, shape) - 1, 0)
    return meta.where(full, meta.take(meta.reshape(src, (available,)), places, 0, "clip"), x)


def _require_mask(name: str, mask: Tensor) -> None:
    require(name, mask.dtype == "bool", f"'mask' has dtype {mask.dtype}", "bool", 'cast it: mask.cast("bool")')
