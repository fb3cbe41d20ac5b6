"""TE computes of operators that pick elements by position, and put them there."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from meta.op import data_dependent
from meta.op.dialect.tvm._adapter import script_tirx, te, tirx
from meta.op.dialect.tvm._elementwise import cast, is_nan, select
from meta.op.dialect.tvm._register import compute
from meta.op.dialect.tvm._scan import nest
from meta.op.dialect.tvm._scatter import scatter as scattered
from meta.op.dialect.tvm.movement import modulo, unflattened
from meta.op.dialect.tvm.transform import is_one
from meta.op.dispatch import CallInfo

Slices = list[tuple[Any, Any]]
"""(start, step) of each sliced axis."""


def _bounds(shape: Sequence[Any], begin: Any, end: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first position and the step of each sliced axis, with NumPy's rules applied."""
    steps = strides or (1,) * len(begin)
    found = zip(begin, end, steps, shape, strict=False)
    return tuple(_start(*slices) for slices in found), tuple(steps[: len(begin)])


def _start(begin: int, end: int, step: int, size: Any) -> int:
    """The first position; 0 whatever the size, which may be symbolic then."""
    return 0 if begin == 0 and step > 0 else slice(begin, end, step).indices(int(size))[0]


def _slices(shape: Sequence[Any], begin: Any, end: Any, strides: Any) -> Slices:
    """From attributes, or from the vector that a generic kernel gets as `begin`: the starts, then the steps."""
    if not isinstance(begin, te.Tensor):
        return list(zip(*_bounds(shape, begin, end, strides), strict=True))
    count = int(begin.shape[0]) // 2
    return [(begin(n), begin(count + n)) for n in range(count)]


def _vector(x: int) -> Callable[[CallInfo], dict[str, tuple[int, ...]]]:
    """Slices of the sliced tensor, whose shape is argument `x` or that of argument `x`, as one vector."""

    def values(call: CallInfo) -> dict[str, tuple[int, ...]]:
        shape = getattr(call.args[x], "shape", call.args[x])
        starts, steps = _bounds(shape, *call.args[-3:])
        return {"begin": (*starts, *steps), "end": (), "strides": ()}

    return values


@compute("strided_slice", vectors=_vector(0))
def strided_slice(x: Any, begin: Any, end: Any, strides: Any, *, out: Any) -> Any:
    found = _slices(x.shape, begin, end, strides)

    def element(*i: Any) -> Any:
        return x(*(start + j * step for j, (start, step) in zip(i, found, strict=False)), *i[len(found) :])

    return te.compute(out[0].shape, element, "strided_slice")


def _hit(i: Sequence[Any], found: Slices, sizes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Whether index `i` lies in the slices, as conditions, and its index in the sliced tensor."""
    conditions: list[Any] = []
    index: list[Any] = list(i)
    for n, ((start, step), size) in enumerate(zip(found, sizes, strict=False)):
        away = i[n] - start
        index[n] = away if isinstance(step, int) and step == 1 else tirx.truncdiv(away, step)
        conditions += [index[n] >= 0, index[n] < size, index[n] * step == away]
    return conditions, index


@compute("strided_slice_dx", vectors=_vector(1), sizes=("shape",))
def strided_slice_dx(dy: Any, shape: Any, begin: Any, end: Any, strides: Any, *, out: Any) -> Any:
    found = _slices(out[0].shape, begin, end, strides)
    zero = tirx.const(0, dy.dtype)

    def element(*i: Any) -> Any:
        conditions, index = _hit(i, found, dy.shape)
        return tirx.if_then_else(tirx.all(*conditions), dy(*index), zero) if conditions else dy(*index)

    return te.compute(out[0].shape, element, "strided_slice_dx")


def _set_vector(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """Starts, steps and lengths of the slices."""
    x, _, begin, end, strides = call.args
    starts, steps = _bounds(x.shape, begin, end, strides)
    return {"begin": (*starts, *steps, *_lengths(x.shape, begin, end, strides)), "end": (), "strides": ()}


def _lengths(shape: Sequence[Any], begin: Any, end: Any, strides: Any) -> tuple[int, ...]:
    steps = strides or (1,) * len(begin)
    return tuple(
        len(range(*slice(b, e, s).indices(int(d)))) for b, e, s, d in zip(begin, end, steps, shape, strict=False)
    )


@compute("strided_set", vectors=_set_vector)
def strided_set(x: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    if isinstance(begin, te.Tensor):
        count = int(begin.shape[0]) // 3
        found: Slices = [(begin(n), begin(count + n)) for n in range(count)]
        lengths: Sequence[Any] = [begin(2 * count + n) for n in range(count)]
    else:
        found = _slices(x.shape, begin, end, strides)
        lengths = _lengths(x.shape, begin, end, strides)
    lead = len(x.shape) - len(v.shape)

    def element(*i: Any) -> Any:
        conditions, index = _hit(i, found, lengths)
        value = v(*(0 if is_one(d) else j for d, j in zip(v.shape, index[lead:], strict=True)))
        return tirx.if_then_else(tirx.all(*conditions), value, x(*i)) if conditions else value

    return te.compute(x.shape, element, "strided_set")


@compute("argwhere", sizes=("size",), accepts=data_dependent.refusal)
def argwhere(x: Any, size: Any, *, out: Any) -> Any:
    rows, rank = out[0].shape
    minus = tirx.const(-1, "int64")
    if not x.shape:
        return te.compute((rows, rank), lambda *_: minus, "argwhere")

    def body(_: Any, buffers: list[Any]) -> None:
        source, target = buffers
        found = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), "int64", scope="local"))
        with script_tirx.serial(0, rows) as row:
            for axis in range(len(x.shape)):
                target[row, axis] = minus
        found[0] = tirx.const(0, "int64")
        with ExitStack() as loops:
            i = tuple(loops.enter_context(script_tirx.serial(0, d)) for d in x.shape)
            hit = tirx.all(cast(source[i], "bool"), found[0] < rows)
            with script_tirx.If(hit), script_tirx.Then():
                for axis, position in enumerate(i):
                    target[found[0], axis] = position
                found[0] = found[0] + 1

    return te.extern([[rows, rank]], [x], nest([], body), dtype="int64", name="argwhere")


# --- positions from a tensor -----------------------------------------------------------------------------------------


def _inside(position: Any, size: Any, mode: str = "clip") -> Any:
    """A position moved into [0, size)."""
    position = position.astype("int64")
    if mode == "wrap":
        return modulo(position, size)
    return tirx.max(tirx.min(position, size - 1), tirx.const(0, "int64"))


def _flat_size(shape: Sequence[Any]) -> Any:
    size: Any = tirx.const(1, "int64")
    for d in shape:
        size = size * d
    return size


@compute("take")
def take(x: Any, indices: Any, axis: int | None, mode: str, *, out: Any) -> Any:
    return _take(x, indices, axis, mode, out[0].shape)


@compute("index_select")
def index_select(x: Any, axis: int, indices: Any, *, out: Any) -> Any:
    return _take(x, indices, axis, "clip", out[0].shape)


@compute("embedding")
def embedding(weight: Any, indices: Any, *, out: Any) -> Any:
    return _take(weight, indices, 0, "clip", out[0].shape)


def _take(x: Any, indices: Any, axis: int | None, mode: str, shape: Any) -> Any:
    if axis is None:
        size = _flat_size(x.shape)
        return te.compute(shape, lambda *i: x(*unflattened(_inside(indices(*i), size, mode), x.shape)), "take")
    at, count = axis % len(x.shape), len(indices.shape)

    def element(*i: Any) -> Any:
        position = _inside(indices(*i[at : at + count]), x.shape[at], mode)
        return x(*i[:at], position, *i[at + count :])

    return te.compute(shape, element, "take")


@compute("take_dx", sizes=("shape",))
def take_dx(dy: Any, indices: Any, shape: Any, axis: int | None, mode: str, *, out: Any) -> Any:
    full = out[0].shape
    if axis is None:
        size = _flat_size(full)
        return scattered(full, dy, indices, lambda i, read: unflattened(_inside(read(*i), size, mode), full))
    return _take_dx(dy, indices, full, axis % len(full), mode)


@compute("embedding_dx")
def embedding_dx(dy: Any, indices: Any, num_weight: int, *, out: Any) -> Any:
    return _take_dx(dy, indices, out[0].shape, 0, "clip")


def _take_dx(dy: Any, indices: Any, full: Any, at: int, mode: str) -> Any:
    count = len(indices.shape)

    def place(i: tuple[Any, ...], read: Callable[..., Any]) -> list[Any]:
        return [*i[:at], _inside(read(*i[at : at + count]), full[at], mode), *i[at + count :]]

    return scattered(full, dy, indices, place)


def _untied(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """Nothing is taken at run time; the extents of x and indices are independent."""
    return {}


@compute("gather", vectors=_untied)
def gather(x: Any, axis: int, indices: Any) -> Any:
    at = axis % max(len(x.shape), 1)
    return te.compute(
        indices.shape,
        lambda *i: x(*i[:at], _inside(indices(*i), x.shape[at]), *i[at + 1 :]) if i else x(),
        "gather",
    )


def _along(axis: int, shape: Any) -> Callable[[tuple[Any, ...], Callable[..., Any]], list[Any]]:
    at = axis % max(len(shape), 1)
    return lambda i, read: [*i[:at], _inside(read(*i), shape[at]), *i[at + 1 :]] if i else []


@compute("gather_dx", vectors=_untied, sizes=("shape",))
def gather_dx(dy: Any, axis: int, indices: Any, shape: Any, *, out: Any) -> Any:
    return scattered(out[0].shape, dy, indices, _along(axis, out[0].shape))


@compute("scatter_add", vectors=_untied)
def scatter_add(x: Any, axis: int, indices: Any, src: Any) -> Any:
    return scattered(x.shape, src, indices, _along(axis, x.shape), x)


_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": operator.add,
    "mul": operator.mul,
    # NaN, which is not less than anything, stays whichever of the two it is.
    "min": lambda old, new: select(tirx.any(old <= new, is_nan(old)), old, new),
    "max": lambda old, new: select(tirx.any(old >= new, is_nan(old)), old, new),
}


@compute("scatter_elements", vectors=_untied)
def scatter_elements(x: Any, axis: int, indices: Any, src: Any, reduction: str) -> Any:
    return scattered(x.shape, src, indices, _along(axis, x.shape), x, _COMBINE[reduction])


def _coordinates(rank: int, picked: int, indices: Any, full: Any, batch: int = 0) -> Any:
    """(index, read) -> index into a tensor of `rank` axes, of shape `full`, from the index of what is picked from it,
    which has `picked` axes."""
    lead = len(indices.shape) - 1
    count = rank - batch - (picked - lead)

    def place(i: tuple[Any, ...], read: Callable[..., Any]) -> list[Any]:
        inside = (_inside(read(n, *i[:lead]), full[batch + n]) for n in range(count))
        return [*i[:batch], *inside, *i[lead:]]

    return place


@compute("gather_nd", vectors=_untied)
def gather_nd(x: Any, indices: Any, batch_dims: int, *, out: Any) -> Any:
    place = _coordinates(len(x.shape), len(out[0].shape), indices, x.shape, batch_dims)
    return te.compute(out[0].shape, lambda *i: x(*place(i, indices)), "gather_nd")


@compute("gather_nd_dx", vectors=_untied, sizes=("shape",))
def gather_nd_dx(dy: Any, indices: Any, shape: Any, batch_dims: int, *, out: Any) -> Any:
    full = out[0].shape
    return scattered(full, dy, indices, _coordinates(len(full), len(dy.shape), indices, full, batch_dims))


@compute("scatter_nd", vectors=_untied)
def scatter_nd(x: Any, indices: Any, src: Any, reduction: str) -> Any:
    place = _coordinates(len(x.shape), len(src.shape), indices, x.shape)
    return scattered(x.shape, src, indices, place, x, _COMBINE[reduction])
