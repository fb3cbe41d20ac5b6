"""NumPy indexing in terms of operators, so that it is differentiable and traceable like them.

Integers, slices, `...` and None become one strided_slice and a reshape. Integer arrays (with which the integers among
them count as arrays, as in NumPy) become one take or gather_nd. Boolean masks are turned into positions on the host, so
they need values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import EllipsisType
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.backend.memory import numpy_arrays
from meta.dim import Dim, SymDim
from meta.eager.masks import MaskAxis, check_masks, is_mask, is_scalar_mask, mask_positions
from meta.eager.open_index import with_positions
from meta.eager.slices import Slices, bound, slices
from meta.errors import PositionError, SymbolicSizeError, TraceError, TypeInferenceError, attributed
from meta.modes import modes
from meta.op import rules
from meta.parts import mark_part
from meta.schema._dsl import TensorLike
from meta.tree import is_tuple

Index = Any
"""int | slice | EllipsisType | None | list | numpy integer or boolean array | tensor | tuple of these"""

_ALLOWED = "integers, slices, ..., None, and arrays of integers or booleans"


def getitem(x: Tensor, index: Index) -> Any:
    """`x[index]` by NumPy's rules; the result is a copy (of everything but `x[...]` and the like). A copy that would be
    a view in NumPy is a part (see meta.parts).

    Raises PositionError for an invalid index, for positions out of range and for too many of them; TraceError for a
    mask in a traced function, where its values are unknown."""
    if type(index) is int and x.ndim:
        return _row(x, index)
    if is_scalar_mask(index):
        return getitem(meta.expand_dims(x, 0), _item(index).reshape(1))
    items = expanded(x, index)
    if not any(map(is_array, items)):
        return _of_slices(x, items)
    return _advanced(x, items)


def _row(x: Tensor, position: int) -> Any:
    """`x[position]`, the index that loops over arrays take, without the general machinery."""
    if not isinstance(x.shape[0], int):
        return _of_slices(x, [position, *[slice(None)] * (x.ndim - 1)])
    begin, end, step, _ = bound(position, x.shape[0], 0)
    return mark_part(meta.reshape(meta.strided_slice(x, (begin,), (end,), (step,)), x.shape[1:]), x)


def _of_slices(x: Tensor, items: Sequence[Any]) -> Any:
    """`x[items]` for integers, slices and Nones."""
    try:
        part = slices(x.shape, items)
    except SymbolicSizeError:
        taken, rest = with_positions(x, items)
        return mark_part(_basic(taken, slices(taken.shape, rest)), x)
    return _basic(x, part)


def _basic(x: Tensor, part: Slices) -> Any:
    out = x if part.whole else meta.strided_slice(x, part.begin, part.end, part.strides)
    out = out if part.shape == out.shape else meta.reshape(out, part.shape)
    return out if part.whole else mark_part(out, x)


def value_for(x: Any, value: Any) -> Any:
    """The value that is assigned into x, as a tensor of its dtype. Raises TypeInferenceError for one of a higher
    category."""
    tensor = value if _is_tensor(value) else meta.array(assigned_array(value, x.dtype), device=x.device)
    check_dtype(tensor.dtype, x.dtype)
    return tensor if tensor.dtype == x.dtype else tensor.cast(x.dtype)


def assigned_array(value: object, dtype: str) -> Any:
    """Numbers or an array that are written into a tensor of `dtype`, converted once, as a NumPy array of it. Raises
    TypeInferenceError for a value of a higher category, ArgumentError for Python integers outside of its range."""
    has_dtype = hasattr(value, "dtype")
    kind = numpy_arrays.host_array(value, None).dtype if has_dtype else numpy_arrays.numbers_dtype(value)
    check_dtype(dtypes.canonical(kind), dtype)
    return numpy_arrays.host_array(value, dtype)


@attributed("setitem")
def check_dtype(value: str, target: str) -> None:
    """Raise TypeInferenceError for a value of a higher category (bool, integer, float) than what it is written into."""
    rules.require(dtypes.category(value) <= dtypes.category(target),
                  f"a value of {value} for a tensor of {target}",
                  "integers for floats, bools for integers, not the reverse",
                  f'cast it: value.cast("{target}")')  # fmt: skip


@attributed("setitem")
def check_value(shape: Sequence[Dim], target: Sequence[Dim]) -> None:
    """Raise TypeInferenceError unless a value of `shape` broadcasts to `target`."""
    full = rules.broadcast_shapes(tuple(shape), tuple(target))
    rules.require(rules.same_shape(full, tuple(target)),
                  f"a value of shape {_show(shape)} for {_show(target)}", "shapes that broadcast")  # fmt: skip


def host_index(x: Tensor, index: Index) -> tuple[Any, ...]:
    """The index, checked, in a form that NumPy takes for an array of the shape of x."""
    import numpy as np

    if is_scalar_mask(index):
        return (_item(index),)
    sizes, axes = iter(x.shape), count()
    out: list[Any] = []
    for item in expanded(x, index):
        if item is None:
            out.append(item)
            continue
        size, axis = next(sizes), next(axes)
        if is_array(item):
            item = np.asarray(_in_range(item, size, axis)[0])
        else:
            bound(item, size, axis)
        out.append(item)
    _broadcast_shape([item.shape for item in out if is_array(item)])
    return tuple(out)


# --- the parts of an index -------------------------------------------------------------------------------------------


def expanded(x: Tensor, index: Index) -> list[Any]:
    """One item an axis (and the Nones in between): `...` written out, lists and masks as arrays of positions."""
    parts: list[Any] = list(index) if is_tuple(index) else [index]
    items = [_item(part) for part in parts]
    items = [part for item in items for part in (mask_positions(item) if is_mask(item) else [item])]
    dots = [i for i, item in enumerate(items) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        raise PositionError("index", f"{len(dots)} times '...'", "at most once")
    missing = x.ndim - sum(item is not None for item in items) + len(dots)
    if missing < 0:
        raise PositionError("index", f"{x.ndim - missing} indices for shape {_show(x.shape)}", f"at most {x.ndim}")
    position = dots[0] if dots else len(items)
    items[position : position + 1] = [slice(None)] * missing
    check_masks(x.shape, items)
    return [item.positions if isinstance(item, MaskAxis) else item for item in items]


def _item(item: Any) -> Any:
    """An item of an index in one of the forms: int, slice, None, ..., NumPy array, tensor."""
    if item is None or isinstance(item, (slice, EllipsisType)):
        return item  # pyright: ignore[reportUnknownVariableType]
    if _is_tensor(item):
        return _tensor_item(item)
    if isinstance(item, bool):
        raise PositionError("index", f"{item} is a bool", f"{_ALLOWED}", "meta.where chooses by masks")
    if isinstance(item, SymDim):
        return item
    if hasattr(item, "__index__") and not getattr(item, "shape", ()) and getattr(item, "dtype", None) != "bool":
        return item.__index__()
    if isinstance(item, (list, range)) or hasattr(item, "__array__"):
        return _array_item(item)
    raise PositionError("index", f"{type(item).__name__} is not an index", f"{_ALLOWED}")


def _array_item(item: Any) -> Any:
    import numpy as np

    try:
        array = np.asarray(item, None if not isinstance(item, list) or item else np.int64)
    except ValueError:
        raise PositionError("index", "a ragged list", f"{_ALLOWED}") from None
    if array.dtype.kind not in "iub":
        raise PositionError("index", f"an array of {array.dtype}", f"{_ALLOWED}")
    return array if array.dtype == bool else _host_int64(array)


def _tensor_item(item: Any) -> Any:
    """A mask becomes a NumPy array, which needs its values."""
    if dtypes.is_float(item.dtype):
        raise PositionError("index", f"a tensor of {item.dtype}", f"{_ALLOWED}", 'x.cast("int64")')
    if item.dtype != "bool":
        return item
    item = item.concrete if hasattr(item.__class__, "concrete") else item  # of a transformation
    if not isinstance(item, meta.NDArray):
        raise TraceError(
            "index",
            "a mask is needed by value while tracing, and the shape of the result depends on it",
            "integer indices",
            "use meta.where(mask, x, 0)",
        )
    return _array_item(item)


def _is_tensor(item: object) -> bool:
    return isinstance(item, TensorLike)


def is_array(item: object) -> bool:
    return _is_tensor(item) or hasattr(item, "__array__")


def _show(shape: Sequence[Dim]) -> str:
    return rules.show(tuple(shape))


# --- arrays as indices -----------------------------------------------------------------------------------------------


def _advanced(x: Tensor, items: list[Any]) -> Any:
    """Slices and Nones first, then the arrays (and integers) in one go."""
    picked = [is_array(item) or isinstance(item, int) for item in items]
    x = _basic(x, slices(x.shape, [slice(None) if p else item for p, item in zip(picked, items, strict=True)]))
    axes = [i for i, p in enumerate(picked) if p]
    positions = [_in_range(items[i], x.shape[i], i) for i in axes]
    if len(axes) == 1:
        index, mode = positions[0]
        return meta.take(x, _as_tensor(index, x), axes[0], mode)
    return _gathered(x, axes, positions)


Positions = list[tuple[Any, Literal["clip", "raise"]]]
"""Arrays as indices, each with the mode of take: "clip" for those known to be inside, which need no check."""


def _in_range(item: object, size: Dim, axis: int) -> tuple[Any, Literal["clip", "raise"]]:
    """Positions, and the mode of take; those with values at hand are checked and become non-negative."""
    import numpy as np

    if _is_tensor(item) and not _at_hand(item):
        return item, "raise"
    index = np.asarray(item)
    if not isinstance(size, int):
        return _host_int64(index), "raise"
    if index.size and index.min() >= 0 and index.max() < size:
        return item if _is_tensor(item) else index.astype(np.int64), "clip"
    index = _host_int64(index)
    wrong: Any = index[(index < -size) | (index >= size)]
    if wrong.size:
        raise PositionError(
            "index",
            f"{wrong.flat[0]} is out of range for axis {axis} of size {size}",
            f"{-size} to {size - 1}" if size else "no index, as the axis is empty",
        )
    return index + size * (index < 0), "clip"


_LARGEST = dtypes.int_range("int64")[1]


def _host_int64(index: Any) -> Any:
    """Positions as int64; uint64 positions beyond it become the largest one, which is outside of every axis."""
    import numpy as np

    return (np.minimum(index, np.uint64(_LARGEST)) if index.dtype == np.uint64 else index).astype(np.int64)


def int64_positions(index: Any) -> Any:
    """A tensor of positions as int64; uint64 positions beyond it become the largest one, which is outside of every
    axis."""
    return (meta.clip(index, None, _LARGEST) if index.dtype == "uint64" else index).cast("int64")


def _at_hand(item: object) -> bool:
    """Whether the values of a tensor can be read without waiting for a device."""
    return isinstance(item, meta.NDArray) and item.device.kind == "cpu" and modes.trace is None


def _as_tensor(index: object, x: Tensor) -> Any:
    return index if _is_tensor(index) else meta.array(index, dtype="int64", device=x.device)


def _gathered(x: Tensor, axes: list[int], positions: Positions) -> Any:
    """Several arrays at once: their axes go to the front, and the axes of the result of broadcasting the arrays come
    back to where they were if they were neighbours (NumPy's rule), else stay in front."""
    order = (*axes, *(i for i in range(x.ndim) if i not in axes))
    sizes = [x.shape[i] for i in axes]
    moved = x if order == tuple(range(x.ndim)) else meta.transpose(x, order)
    coordinates = _coordinates(positions, sizes, x)
    out = meta.gather_nd(moved, coordinates)
    rank, first = coordinates.ndim - 1, axes[0]
    if first == 0 or axes != list(range(first, first + len(axes))):
        return out
    return meta.transpose(out, (*range(rank, rank + first), *range(rank), *range(rank + first, out.ndim)))


def _coordinates(positions: Positions, sizes: Sequence[Dim], x: Tensor) -> Any:
    """The arrays broadcast and stacked, (number of arrays, ...), with negative positions counted from the end."""
    import numpy as np

    shape = _broadcast_shape([tuple(index.shape) for index, _ in positions])
    if all(mode == "clip" for _, mode in positions):
        host = [np.broadcast_to(np.asarray(index, np.int64), shape) for index, _ in positions]
        return meta.array(np.stack(host), device=x.device)
    parts = [int64_positions(_as_tensor(index, x)) for index, _ in positions]
    counted = [meta.where(part < 0, part + size, part) for part, size in zip(parts, sizes, strict=True)]
    return meta.stack([meta.broadcast_to(part, shape) for part in counted])


def _broadcast_shape(shapes: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    try:
        return rules.broadcast_shapes(*shapes)
    except TypeInferenceError:
        raise PositionError(
            "index", f"arrays of shapes {' and '.join(map(_show, shapes))}", "shapes that broadcast"
        ) from None
