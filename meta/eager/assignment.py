"""`x[index] = value` as a function of x and the value, in terms of operators: differentiable, and traceable."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, cast

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.eager.indexing import Index, check_value, expanded, getitem, is_array, value_for
from meta.eager.slices import slices
from meta.errors import NotSupportedError
from meta.records import record


def setitem(x: Tensor, index: Index, value: object) -> Any:
    """x with `x[index]` replaced by `value`, a tensor or a number, which is broadcast and cast to the dtype of x.

    Raises PositionError as `getitem` does, TypeInferenceError for a value that does not fit, NotSupportedError for
    arrays among the indices of a tensor of symbolic size."""
    mask = _mask(x, index)
    if mask is not None:
        return _set_where(x, mask, value_for(x, value))
    items = expanded(x, index)
    if any(map(is_array, items)):
        return _set_at(x, index, value_for(x, value))
    part = slices(x.shape, items)
    tensor = value_for(x, value)
    if tensor.size != 1:
        if tensor.shape != part.shape:
            check_value(tensor.shape, part.shape)
            tensor = meta.broadcast_to(tensor, part.shape)
        tensor = meta.reshape(tensor, part.full)
    elif tensor.ndim:
        tensor = meta.reshape(tensor, ())
    return meta.strided_set(x, tensor, part.begin, part.end, part.strides)


def _set_at(x: Any, index: Index, value: Any) -> Any:
    """Arrays as indices: the elements at their positions in row-major order."""
    if not isinstance(x.size, int):
        raise NotSupportedError(
            "index",
            "arrays in an assignment to a tensor of symbolic size",
            "integers, slices, ... and None",
            "use meta.where for masks, meta.scatter_add for positions",
        )
    places = getitem(meta.reshape(meta.arange(0, x.size, dtype="int64", device=x.device), x.shape), index)
    check_value(value.shape, places.shape)
    count = product(places.shape)
    if not count:
        return meta.copy(x)
    values = meta.reshape(meta.broadcast_to(value, places.shape), (count,))
    flat = meta.scatter_nd(meta.reshape(x, (x.size,)), meta.reshape(places, (1, count)), values, "update")
    return meta.reshape(flat, x.shape)


@record
class _Mask:
    """A mask tensor as an index. before, after: the number of axes of x before and after those that it picks from."""

    mask: Any
    before: int
    after: int


def _mask(x: Tensor, index: Index) -> _Mask | None:
    """The index as a mask among whole axes, whose values need not be known; None for another index."""
    parts = cast("Sequence[Any]", index if isinstance(index, tuple) else (index,))
    places = [i for i, part in enumerate(parts) if isinstance(part, Tensor) and part.dtype == "bool"]
    if len(places) != 1:
        return None
    place, mask = places[0], parts[places[0]]
    whole = [part for i, part in enumerate(parts) if i != place]
    if (mask.ndim == 0 and whole) or any(
        not isinstance(part, EllipsisType) and not (isinstance(part, slice) and part == slice(None)) for part in whole
    ):
        return None
    dots = [i for i, part in enumerate(parts) if isinstance(part, EllipsisType)]
    left = x.ndim - mask.ndim - (len(whole) - len(dots))
    if len(dots) > 1 or left < 0:
        return None
    before = place - len(dots) + left if dots and dots[0] < place else place
    if tuple(x.shape[before : before + mask.ndim]) != tuple(mask.shape):
        return None
    return _Mask(mask, before, x.ndim - before - mask.ndim)


def _set_where(x: Any, index: _Mask, value: Any) -> Any:
    """A value for all elements that a mask picks, or one for each in their order."""
    mask, after = index.mask, index.after
    full = meta.reshape(mask, (*(1,) * index.before, *mask.shape, *(1,) * after))
    picked = value.shape[-after - 1] if value.ndim > after else 1
    if picked == 1:
        behind = value.shape[value.ndim - after :] if value.ndim > after else value.shape
        front = value.shape[: value.ndim - after - 1] if value.ndim > after else ()
        ones = (1,) * (mask.ndim if value.ndim > after else 0)
        check_value(behind, x.shape[x.ndim - after :])
        check_value(front, x.shape[: index.before])
        return meta.where(full, meta.reshape(value, (*front, *ones, *behind)), x)
    if index.before:
        return _set_at(x, (*(slice(None),) * index.before, mask), value)
    rest = tuple(x.shape[x.ndim - after :])
    check_value(value.shape[1:], rest)
    rows = meta.broadcast_to(value, (picked, *rest))
    return meta.masked_scatter(x, meta.broadcast_to(full, x.shape), rows)
