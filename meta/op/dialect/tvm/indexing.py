"""TE computes of operators that read and write elements by position."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import cast, is_nan, is_one, select
from meta.backend.tvm.te.indexing import Located, joined, locate, read, unflattened
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import nest
from meta.backend.tvm.te.scatter import scatter as scattered
from meta.dim import WHOLE
from meta.ir.expr import CallInfo
from meta.op import data_dependent
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

Slices = list[tuple[Any, Any]]
"""(start, step) of each sliced axis."""


def _starts_and_steps(
    shape: Sequence[Any], begin: Any, end: Any, strides: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first position and the step of each sliced axis, by NumPy's rules."""
    steps = strides or (1,) * len(begin)
    axes = zip(begin, end, steps, shape, strict=False)
    return tuple(_start(*axis) for axis in axes), tuple(steps[: len(begin)])


def _start(begin: int, end: int, step: int, size: Any) -> int:
    """The first position of a slice; an expression in a symbolic size, where no element is read beyond the end."""
    if isinstance(size, (int, tirx.IntImm)):
        return slice(begin, end, step).indices(int(size))[0]
    return begin if begin >= 0 and step > 0 else _clipped(begin, size, step)


def _clipped(bound: int, size: Any, step: int) -> Any:
    """`rules.clipped` in an expression of a symbolic size."""
    low = 0 if step > 0 else -1
    if bound < 0:
        return low if bound <= -WHOLE else tirx.max(size + bound, low)
    return tirx.min(tirx.const(bound, "int64"), size + low)


def _slices(shape: Sequence[Any], begin: Tensor, end: Any, strides: Any) -> Slices:
    """Slices from attributes, or from the run-time vector `begin` of a generic kernel: starts, then steps."""
    if not isinstance(begin, te.Tensor):
        return list(zip(*_starts_and_steps(shape, begin, end, strides), strict=True))
    count = int(begin.shape[0]) // 2
    return [(begin(n), begin(count + n)) for n in range(count)]


def _slice_vector(position: int) -> Callable[[CallInfo], dict[str, tuple[int, ...]]]:
    """The slices of a call as one vector. Argument `position` is the sliced tensor, or its shape."""

    def values(call: CallInfo) -> dict[str, tuple[int, ...]]:
        shape = getattr(call.args[position], "shape", call.args[position])
        starts, steps = _starts_and_steps(shape, *call.args[-3:])
        return {"begin": (*starts, *steps), "end": (), "strides": ()}

    return values


@compute("strided_slice", vectors=_slice_vector(0))
def strided_slice(x: Tensor, begin: Tensor, end: Any, strides: Any, *, out: Outs) -> Any:
    slices = _slices(x.shape, begin, end, strides)

    def element(*i: Expr) -> Any:
        return x(*(start + j * step for j, (start, step) in zip(i, slices, strict=False)), *i[len(slices) :])

    return te.compute(out[0].shape, element, "strided_slice")


def _invert_slices(i: Sequence[Any], slices: Slices, sizes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The conditions under which index `i` lies in the slices, and its index in the sliced tensor."""
    conditions: list[Any] = []
    index: list[Any] = list(i)
    for n, ((start, step), size) in enumerate(zip(slices, sizes, strict=False)):
        offset = i[n] - start
        index[n] = offset if isinstance(step, int) and step == 1 else tirx.truncdiv(offset, step)
        conditions += [index[n] >= 0, index[n] < size, index[n] * step == offset]
    return conditions, index


@compute("strided_slice_dx", vectors=_slice_vector(1), sizes=("shape",))
def strided_slice_dx(dy: Tensor, shape: Any, begin: Tensor, end: Any, strides: Any, *, out: Outs) -> Any:
    slices = _slices(out[0].shape, begin, end, strides)
    zero = tirx.const(0, dy.dtype)

    def element(*i: Expr) -> Any:
        conditions, index = _invert_slices(i, slices, dy.shape)
        return tirx.if_then_else(tirx.all(*conditions), dy(*index), zero) if conditions else dy(*index)

    return te.compute(out[0].shape, element, "strided_slice_dx")


def _set_vector(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """The starts, steps and lengths of the slices as one vector."""
    x, _, begin, end, strides = call.args
    starts, steps = _starts_and_steps(x.shape, begin, end, strides)
    return {"begin": (*starts, *steps, *_lengths(x.shape, begin, end, strides)), "end": (), "strides": ()}


def _lengths(shape: Sequence[Any], begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
    steps = strides or (1,) * len(begin)
    return tuple(_length(*axis) for axis in zip(begin, end, steps, shape, strict=False))


def _length(begin: int, end: int, step: int, size: Any) -> Any:
    """The number of positions in a slice; an expression in a symbolic size."""
    if isinstance(size, (int, tirx.IntImm)):
        return len(range(*slice(begin, end, step).indices(int(size))))
    first, last = (_clipped(bound, size, step) for bound in ((begin, end) if step > 0 else (end, begin)))
    return tirx.truncdiv(tirx.max(last - first, 0) + abs(step) - 1, abs(step))


@compute("strided_set", vectors=_set_vector)
def strided_set(x: Tensor, v: Tensor, begin: Tensor, end: Any, strides: Any) -> Any:
    if isinstance(begin, te.Tensor):
        count = int(begin.shape[0]) // 3
        slices: Slices = [(begin(n), begin(count + n)) for n in range(count)]
        lengths: Sequence[Any] = [begin(2 * count + n) for n in range(count)]
    else:
        slices = _slices(x.shape, begin, end, strides)
        lengths = _lengths(x.shape, begin, end, strides)
    lead = len(x.shape) - len(v.shape)

    def element(*i: Expr) -> Any:
        conditions, index = _invert_slices(i, slices, lengths)
        value = v(*(0 if is_one(d) else j for d, j in zip(v.shape, index[lead:], strict=True)))
        return tirx.if_then_else(tirx.all(*conditions), value, x(*i)) if conditions else value

    return te.compute(x.shape, element, "strided_set")


@compute("argwhere", vectors=separate_extents, sizes=("size",), accepts=data_dependent.refusal)
def argwhere(x: Any, size: Any, *, out: Outs) -> Any:
    rows, rank = out[0].shape
    minus_one = tirx.const(-1, "int64")
    if not x.shape:
        return te.compute((rows, rank), lambda *_: minus_one, "argwhere")

    def body(_: Any, buffers: list[Any]) -> None:
        source, target = buffers
        count = registers(1, "int64")
        with script_tirx.serial(0, rows) as row:
            for axis in range(len(x.shape)):
                target[row, axis] = minus_one
        count[0] = tirx.const(0, "int64")
        with ExitStack() as loops:
            i = tuple(loops.enter_context(script_tirx.serial(0, d)) for d in x.shape)
            is_counted = tirx.all(cast(source[i], "bool"), count[0] < rows)
            with script_tirx.If(is_counted), script_tirx.Then():
                for axis, position in enumerate(i):
                    target[count[0], axis] = position
                count[0] = count[0] + 1

    return te.extern([[rows, rank]], [x], nest([], body), dtype="int64", name="argwhere")


# --- positions given by a tensor --------------------------------------------------------------------------------------


def _count_elements(shape: Sequence[Any]) -> Any:
    size: Any = tirx.const(1, "int64")
    for d in shape:
        size = size * d
    return size


@compute("take")
def take(x: Tensor, indices: Tensor, axis: int | None, mode: str, *, out: Outs, checked: bool) -> Any:
    return _take(x, indices, axis, mode, out[0].shape, checked)


@compute("index_select")
def index_select(x: Tensor, axis: int, indices: Tensor, *, out: Outs, checked: bool) -> Any:
    return _take(x, indices, axis, "", out[0].shape, checked)


@compute("embedding")
def embedding(weight: Tensor, indices: Tensor, *, out: Outs, checked: bool) -> Any:
    return _take(weight, indices, 0, "", out[0].shape, checked)


def _take(x: Tensor, indices: Tensor, axis: int | None, mode: str, shape: Any, checked: bool) -> Any:
    if axis is None:
        return te.compute(shape, lambda *i: read(x, _locate_flat(indices(*i), x.shape, mode, checked)), "take")
    axis, count = axis % len(x.shape), len(indices.shape)

    def element(*i: Expr) -> Any:
        position = locate(indices(*i[axis : axis + count]), x.shape[axis], checked, mode)
        return read(x, joined(*i[:axis], position, *i[axis + count :]))

    return te.compute(shape, element, "take")


def _locate_flat(position: Expr, shape: Any, mode: str, checked: bool) -> Located:
    """A position in a flattened tensor as an index into the tensor."""
    place = locate(position, _count_elements(shape), checked, mode)
    return Located(tuple(unflattened(place.index[0], shape)), place.inside)


@compute("take_dx", sizes=("shape",))
def take_dx(dy: Any, indices: Tensor, shape: Any, axis: int | None, mode: str, *, out: Outs, checked: bool) -> Any:
    full = out[0].shape
    if axis is None:
        return scattered(full, dy, indices, lambda i, read: _locate_flat(read(*i), full, mode, checked))
    return _take_dx(dy, indices, full, axis % len(full), mode, checked)


@compute("embedding_dx", vectors=separate_extents, sizes=("num_weight",))
def embedding_dx(dy: Any, indices: Tensor, num_weight: int, *, out: Outs, checked: bool) -> Any:
    return _take_dx(dy, indices, out[0].shape, 0, "", checked)


def _take_dx(dy: Any, indices: Tensor, full: Any, axis: int, mode: str, checked: bool) -> Any:
    count = len(indices.shape)

    def target_index(i: tuple[Any, ...], read: Callable[..., Any]) -> Located:
        return joined(*i[:axis], locate(read(*i[axis : axis + count]), full[axis], checked, mode), *i[axis + count :])

    return scattered(full, dy, indices, target_index)


@compute("gather", vectors=separate_extents)
def gather(x: Tensor, axis: int, indices: Tensor, *, checked: bool) -> Any:
    index_along = _index_along(axis, x.shape, checked)
    return te.compute(indices.shape, lambda *i: read(x, index_along(i, indices)), "gather")


def _index_along(axis: int, shape: Any, checked: bool) -> Callable[[tuple[Any, ...], Callable[..., Any]], Located]:
    """(index, read) -> index with its entry for `axis` replaced by the position read at `index`."""
    axis = axis % max(len(shape), 1)

    def index_along(i: tuple[Any, ...], read: Callable[..., Any]) -> Located:
        if not i:
            return Located((), locate(read(), tirx.const(1, "int64"), checked).inside)
        return joined(*i[:axis], locate(read(*i), shape[axis], checked), *i[axis + 1 :])

    return index_along


@compute("gather_dx", vectors=separate_extents, sizes=("shape",))
def gather_dx(dy: Any, axis: int, indices: Any, shape: Any, *, out: Outs, checked: bool) -> Any:
    return scattered(out[0].shape, dy, indices, _index_along(axis, out[0].shape, checked))


@compute("scatter_add", vectors=separate_extents)
def scatter_add(x: Tensor, axis: int, indices: Any, src: Any, *, checked: bool) -> Any:
    return scattered(x.shape, src, indices, _index_along(axis, x.shape, checked), x)


_REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": operator.add,
    "mul": operator.mul,
    # NaN wins: comparisons with it are false.
    "min": lambda old, new: select(tirx.any(old <= new, is_nan(old)), old, new),
    "max": lambda old, new: select(tirx.any(old >= new, is_nan(old)), old, new),
}


@compute("scatter_elements", vectors=separate_extents)
def scatter_elements(x: Tensor, axis: int, indices: Any, src: Any, reduction: str, *, checked: bool) -> Any:
    return scattered(x.shape, src, indices, _index_along(axis, x.shape, checked), x, _REDUCTIONS[reduction])


def _coordinates(rank: int, result_rank: int, indices: Tensor, full: Any, checked: bool, batch: int = 0) -> Any:
    """(index, read) -> index into a tensor of `rank` axes and shape `full`; `index` is an index of the gathered result,
    of `result_rank` axes."""
    lead = len(indices.shape) - 1
    count = rank - batch - (result_rank - lead)

    def target_index(i: tuple[Any, ...], read: Callable[..., Any]) -> Located:
        positions = (locate(read(n, *i[:lead]), full[batch + n], checked) for n in range(count))
        return joined(*i[:batch], *positions, *i[lead:])

    return target_index


@compute("gather_nd", vectors=separate_extents)
def gather_nd(x: Tensor, indices: Tensor, batch_dims: int, *, out: Outs, checked: bool) -> Any:
    source_index = _coordinates(len(x.shape), len(out[0].shape), indices, x.shape, checked, batch_dims)
    return te.compute(out[0].shape, lambda *i: read(x, source_index(i, indices)), "gather_nd")


@compute("gather_nd_dx", vectors=separate_extents, sizes=("shape",))
def gather_nd_dx(dy: Tensor, indices: Tensor, shape: Any, batch_dims: int, *, out: Outs, checked: bool) -> Any:
    full = out[0].shape
    return scattered(full, dy, indices, _coordinates(len(full), len(dy.shape), indices, full, checked, batch_dims))


@compute("scatter_nd", vectors=separate_extents)
def scatter_nd(x: Tensor, indices: Tensor, src: Tensor, reduction: str, *, checked: bool) -> Any:
    target_index = _coordinates(len(x.shape), len(src.shape), indices, x.shape, checked)
    return scattered(x.shape, src, indices, target_index, x, _REDUCTIONS[reduction])
