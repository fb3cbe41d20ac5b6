"""Max pooling on a CPU, with or without indices, and its gradient, as loops over planes (images of one channel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import inf, prod
from typing import Any

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.te.elementwise import accumulation_dtype, narrow
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.workarounds.select import opaque_select
from meta.backend.windows import Windows
from meta.records import record

Axes = tuple[Windows, ...]
_SINGLE = Windows(1, 1, 1)


def largest(x: Any, axes: Axes) -> Any:
    """The maximum of each window; the lowest value of the dtype for a window without elements."""
    (y,) = _pool(x, axes, "")
    return y


def max_with_indices(x: Any, axes: Axes, index: str) -> tuple[Any, Any]:
    """The maximum of each window and its flat index in the plane, of dtype `index`: of equal elements the first, of
    several NaN the last, -1 for a window without elements."""
    return _pool(x, axes, index)


def _pool(x: Any, axes: Axes, index: str) -> tuple[Any, ...]:
    """The maximum of each window, and its index in the plane unless `index` is "".

    It works in the dtype of accumulation: TVM has no vectors of bfloat16."""
    dtype, skipped = accumulation_dtype(x.dtype), 3 - len(axes)
    shape = (*x.shape[:2], *(tvm.IntImm("int64", axis.count) for axis in axes))

    def pool(plane: Sequence[Any], source: Any, y: Any, *indices: Any) -> None:
        def address(position: Sequence[Any], lanes: int) -> tuple[Any, ...]:
            return (*plane, *position[skipped:-1], _ramp(position[-1], lanes))

        def load(position: Sequence[Any], lanes: int) -> Any:
            return source[address(position, lanes)]

        def store(window: Sequence[Any], value: Any, place: Any, lanes: int) -> None:
            y[address(window, lanes)] = value
            for buffer in indices:
                buffer[address(window, lanes)] = place

        _pool_plane((*(_SINGLE,) * skipped, *axes), load, store, dtype, index)

    wide = narrow(x, dtype, "wide")
    if not index:
        return (narrow(_by_plane([wide], [shape], [dtype], pool, "max_pool"), x.dtype),)
    y, indices = _by_plane([wide], [shape, shape], [dtype, index], pool, "max_pool_with_indices")
    return narrow(y, x.dtype), indices


def max_dx(dy: Any, indices: Any, shape: Sequence[Any]) -> Any:
    """dy added at its indices. As the elements of a plane are contiguous, a flat index may count along the last axis
    from the start of the plane."""
    dtype = accumulation_dtype(dy.dtype)
    sizes, counts = ([int(d) for d in t[2:]] for t in (shape, dy.shape))
    size, zeros = prod(sizes), (0,) * (len(sizes) - 1)

    def scatter(plane: Sequence[Any], source: Any, places: Any, dx: Any) -> None:
        with script_tirx.serial(0, size) as k:
            dx[(*plane, *zeros, k)] = tirx.const(0, dtype)
        with ExitStack() as nest:
            i = _loops(nest, counts)
            place = script_tirx.bind(places[(*plane, *i)])
            with script_tirx.If(tirx.all(place >= 0, place < size)), script_tirx.Then():
                dx[(*plane, *zeros, place)] = dx[(*plane, *zeros, place)] + source[(*plane, *i)]

    return narrow(_by_plane([narrow(dy, dtype, "wide"), indices], [shape], [dtype], scatter, "max_pool_dx"), dy.dtype)


def _by_plane(
    inputs: Sequence[Any], shapes: Sequence[Any], kinds: Sequence[str], body: Callable[..., None], name: str
) -> Any:
    """Tensors of `shapes` and dtypes `kinds`; `body(plane, *inputs, *outputs)` writes their plane (batch, channel).
    Several threads call it if a tensor is large or has a symbolic size."""
    batch, channels = shapes[0][:2]
    loop = script_tirx.serial if _is_small(inputs[0].shape) and _is_small(shapes[0]) else script_tirx.parallel

    def planes(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with tvm.IRBuilder() as builder:
            buffers = [script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs)]
            with loop(0, batch * channels) as number:
                body((tirx.floordiv(number, channels), tirx.floormod(number, channels)), *buffers)
        return builder.get()

    return te.extern(shapes, inputs, planes, dtype=kinds, name=name)


def _is_small(shape: Sequence[Any]) -> bool:
    return all(isinstance(d, (int, tvm.IntImm)) for d in shape) and prod(map(int, shape)) < limits.PARALLEL_WORK


# --- one plane -------------------------------------------------------------------------------------------------------


@record
class _Vectors:
    """How windows along an axis are computed in vectors.

    first, end: the windows whose elements vectors are loaded for without leaving the row; others are computed singly.
    lanes: windows per vector.
    blocks: (offset from the start of a window, the elements of the window as offsets from there) of each load.
    """

    first: int
    end: int
    lanes: int
    blocks: tuple[tuple[int, tuple[int, ...]], ...]


def _vectors(axis: Windows, most: int) -> _Vectors:
    """For windows that are short, regular and at least two; without any other ones. A block has as many elements as
    there are from a window to the next. It starts as early as possible, so that it does not reach beyond the last
    element that is used."""
    if axis.adaptive or axis.kernel > limits.MAX_POOL_WINDOW or axis.stride > limits.MAX_POOL_STRIDE:
        return _Vectors(0, 0, 1, ())
    offsets = [r * axis.dilation for r in range(axis.kernel)]
    blocks: list[tuple[int, tuple[int, ...]]] = []
    while offsets:
        inside = [o for o in offsets if o < offsets[0] + axis.stride]
        start = max(inside[-1] - axis.stride + 1, 0)
        blocks.append((start, tuple(o - start for o in inside)))
        offsets = offsets[len(inside) :]
    first = -(-axis.before // axis.stride)
    reach = max(start for start, _ in blocks) + axis.stride
    end = max(first, min((axis.size + axis.before - reach) // axis.stride + 1, axis.count))
    if end - first < 2:
        return _Vectors(0, 0, 1, ())
    lanes = most
    while lanes > end - first:
        lanes //= 2
    return _Vectors(first, end, lanes, tuple(blocks))


Store = Callable[[Sequence[Any], Any, Any, int], None]
"""(window, maxima, their indices, lanes)."""


@record
class _Source:
    """The elements that are pooled along a row. values: (position, lanes) -> as many neighbours.  indices: (position,
    lanes, step) -> the indices of as many elements, each `step` after the last.  ordered: whether the indices of a
    row's elements rise.
    index: their dtype, "" without indices, which are then None."""

    values: Callable[[Sequence[Any], int], Any]
    indices: Callable[[Sequence[Any], int, int], Any]
    ordered: bool
    dtype: str
    index: str


def _pool_plane(axes: Axes, load: Callable[[Sequence[Any], int], Any], store: Store, dtype: str, index: str) -> None:
    """Pool a plane of three axes. Large windows are pooled along the first two before the last."""
    deep, high, last = axes

    def flat(position: Sequence[Any], lanes: int, step: int) -> Any:
        if not index:
            return None
        d, h, w = position
        first = ((d * high.size + h) * last.size + w).astype(index)
        return first if lanes == 1 else tirx.Ramp(first, tirx.const(step, index), lanes)

    plane = _Source(load, flat, True, dtype, index)
    with ExitStack() as nest:
        i, j = _loops(nest, [deep.count, high.count])
        rows = (_covered(deep, i), _covered(high, j))

        def finish(k: Any, value: Any, place: Any, lanes: int) -> None:
            store((i, j, k), value, place, lanes)

        if not _in_two_steps(axes):
            _pool_row(rows, last, plane, finish)
            return
        values, places = registers(last.size, dtype), registers(last.size, index) if index else None

        def keep(w: Any, value: Any, place: Any, lanes: int) -> None:
            values[_ramp(w, lanes)] = value
            if places is not None:
                places[_ramp(w, lanes)] = place

        columns = _Source(
            lambda position, lanes: values[_ramp(position[0], lanes)],
            lambda position, lanes, step: None if places is None else places[_ramp(position[0], lanes, step)],
            False,
            dtype,
            index,
        )
        _pool_row(rows, Windows(last.size, last.size, 1), plane, keep)
        _pool_row((), last, columns, finish)


def _in_two_steps(axes: Axes) -> bool:
    *outer, last = axes
    if _vectors(last, 2).lanes == 1:
        return True
    height = prod(axis.kernel for axis in outer)
    return (
        height * last.size + limits.MAX_POOL_MERGE_COST * last.count * last.kernel < height * last.count * last.kernel
    )


def _pool_row(rows: Sequence[_Span], axis: Windows, source: _Source, store: Callable[..., None]) -> None:
    """Pool along an axis, over the same rows for each window; `store(window, maxima, indices, lanes)`."""
    vectors = _vectors(axis, targets.lanes(64 if source.dtype == "float64" else 32))

    def several(k: Any) -> None:
        lanes, start = vectors.lanes, axis.start(k)
        largest = _Largest(source, lanes)
        largest.start(source.indices((*(span.first for span in rows), start), lanes, axis.stride), rows)
        with ExitStack() as nest:
            row = [span.loop(nest) for span in rows]
            for block, offsets in vectors.blocks:
                loaded = script_tirx.bind(source.values((*row, start + block), lanes * axis.stride))
                for o in offsets:
                    place = source.indices((*row, start + block + o), lanes, axis.stride)
                    largest.update(_every(loaded, o, axis.stride, lanes), place)
        store(k, largest.value, largest.index, lanes)

    def single(k: Any) -> None:
        spans = (*rows, _covered(axis, k))
        largest = _Largest(source, 1)
        largest.start(source.indices([span.first for span in spans], 1, 1), spans)
        with ExitStack() as nest:
            position = [span.loop(nest) for span in spans]
            largest.update(script_tirx.bind(source.values(position, 1)), source.indices(position, 1, 1))
        store(k, largest.value, largest.index, 1)

    if vectors.end > vectors.first:
        with script_tirx.serial(0, -(-(vectors.end - vectors.first) // vectors.lanes)) as chunk:
            # The last two vectors may overlap.
            several(tirx.min(vectors.first + chunk * vectors.lanes, vectors.end - vectors.lanes))
    for start, end in ((0, vectors.first), (vectors.end, axis.count)):
        if end > start:
            with script_tirx.serial(start, end) as k:
                single(k)


@record
class _Span:
    """The positions first, first + step, ... that a window covers along an axis. count: how many, none if <= 0.
    last: the last of them, repeated where `count` is the longest window's."""

    first: Any
    count: Any
    step: int
    last: Any = None

    def loop(self, nest: ExitStack) -> Any:
        """The position, in a loop over them."""
        (r,) = _loops(nest, [self.count])
        position = self.first + r * self.step
        return position if self.last is None else tirx.min(position, self.last)


def _covered(axis: Windows, i: Any) -> _Span:
    """The positions inside the plane that window i covers. The windows of adaptive pooling get the same count, because
    branches that depend on their lengths are mispredicted.

    Bounds are read back from memory: the analysis of TVM divides by zero over indices like 2 - (4 - i) % 3."""
    start, bounds = axis.start(i), registers(2, "int32")
    if axis.adaptive:
        bounds[0], bounds[1] = start, tirx.floordiv((i + 1) * axis.size + axis.count - 1, axis.count) - 1
        return _Span(bounds[0], axis.kernel, 1, bounds[1])
    if not axis.inside(i, 0):
        return _Span(start, axis.kernel, axis.dilation)
    skipped = tirx.max(tirx.floordiv(axis.dilation - 1 - start, axis.dilation), 0)
    end = tirx.min(tirx.floordiv(axis.size - start + axis.dilation - 1, axis.dilation), axis.kernel)
    bounds[0], bounds[1] = start + skipped * axis.dilation, end - skipped
    return _Span(bounds[0], bounds[1], axis.dilation)


class _Largest:
    """The maximum so far of as many windows as a vector has lanes: of equal elements the first, of several NaN the
    last. It is kept in memory, which becomes registers: variables that depend on each other are substituted by TVM, to
    expressions that grow exponentially."""

    def __init__(self, source: _Source, lanes: int) -> None:
        self._values = registers(lanes, source.dtype)
        self._indices = registers(lanes, source.index) if source.index else None
        self._source, self._lanes, self._all = source, lanes, _ramp(0, lanes)
        self._floating = dtypes.is_float(source.dtype)

    def start(self, first: Any, spans: Sequence[_Span]) -> None:
        """Start from the lowest value, at `first`, the index of the first element, or at -1 if a span is empty."""
        dtype, index = self._source.dtype, self._source.index
        lowest = -inf if self._floating else dtypes.int_range(dtype)[0]
        self._values[self._all] = self._constant(lowest, dtype)
        if self._indices is None:
            return
        empty = [span.count <= 0 for span in spans if not isinstance(span.count, int)]
        if not self._source.ordered:
            first = self._constant(dtypes.int_range(index)[1], index)
        if empty:
            first = opaque_select(tirx.any(*empty), self._constant(-1, index), first)
        self._indices[self._all] = first

    def _constant(self, value: float, dtype: str) -> Any:
        constant = tirx.const(value, dtype)
        return constant if self._lanes == 1 else tirx.Broadcast(constant, self._lanes)

    @property
    def value(self) -> Any:
        return self._values[self._all]

    @property
    def index(self) -> Any:
        return None if self._indices is None else self._indices[self._all]

    def update(self, value: Any, index: Any) -> None:
        """Compare with another element of the window, in order if the source is."""
        larger = value > self.value
        if self._indices is None:
            # The inner selection is one instruction, the maximum, which ignores NaN on this side.
            largest = opaque_select(larger, value, self.value)
            self._values[self._all] = opaque_select(tirx.isnan(value), value, largest) if self._floating else largest
            return
        if not self._source.ordered:
            larger = tirx.any(larger, tirx.all(tirx.EQ(value, self.value), index < self.index))
        if self._floating:
            nan = tirx.isnan(value)
            if not self._source.ordered:
                nan = tirx.all(nan, tirx.any(tirx.Not(tirx.isnan(self.value)), index > self.index))
            larger = tirx.any(larger, nan)
        self._indices[self._all] = opaque_select(larger, index, self.index)
        self._values[self._all] = opaque_select(larger, value, self.value)


# --- vectors ---------------------------------------------------------------------------------------------------------


def _every(block: tvm.SBlock, first: int, stride: int, lanes: int) -> Any:
    """Every stride-th element of a block, from one on."""
    if stride == 1:
        return block
    return script_tirx.bind(tirx.Shuffle([block], [first + k * stride for k in range(lanes)]))


def _ramp(start: Any, lanes: int, step: int = 1) -> Any:
    return start if lanes == 1 else tirx.Ramp(start, step, lanes)


def _loops(nest: ExitStack, sizes: Sequence[Any]) -> list[Any]:
    return [nest.enter_context(script_tirx.serial(0, size)) for size in sizes]
