"""TE computes of pooling, for any number of spatial axes.

Gradients gather: every element of dx sums over the windows that cover it, so no element is written twice. On a CPU, max
pooling and its gradient are loops (`schedule.cpu.max_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import inf, prod
from operator import add
from typing import Any

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.devices import WARP
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, narrow, widen
from meta.backend.tvm.te.reduce import elements_of, reduce_axes
from meta.backend.tvm.workarounds.select import opaque_select
from meta.backend.windows import Windows
from meta.op import windows
from meta.op.dialect.tvm import Registrar
from meta.records import record

compute = Registrar(__file__).compute

_Ints = tuple[int, ...]
_Axes = tuple[Windows, ...]


def _spatial(shape: Any) -> tuple[int, ...]:
    return tuple(int(d) for d in shape[2:])


def _where(conditions: list[Any], value: Any, otherwise: Any) -> Any:
    """`value` where the conditions hold. Both values are computed: a branch would prevent vectorisation."""
    return opaque_select(tirx.all(*conditions), value, otherwise) if conditions else value


def _within(i: Any, count: int) -> Any:
    """The nearest index in range(count)."""
    return tirx.max(tirx.min(i, count - 1), 0)


def _lowest(dtype: str) -> Any:
    return tirx.const(-inf if dtypes.is_float(dtype) else dtypes.int_range(dtype)[0], dtype)


def _first(a: Expr, b: Expr, dtype: str) -> Any:
    """Whether a is the maximum of the two: larger, or NaN."""
    return tirx.any(a > b, tirx.isnan(a)) if dtypes.is_float(dtype) else a > b


def _reduction_axes(axes: _Axes) -> list[Any]:
    return [te.reduce_axis((0, axis.kernel), f"r{i}") for i, axis in enumerate(axes)]


def _element(axes: _Axes, i: Any, r: list[Any]) -> tuple[list[Any], list[Any]]:
    """The position of element r of window i, clamped to the plane, and the conditions for it to be inside."""
    inside = [axis.inside(a, b) for axis, a, b in zip(axes, i, r, strict=True)]
    positions = [axis.position(a, b) for axis, a, b in zip(axes, i, r, strict=True)]
    clamped = [_within(p, axis.size) if some else p for axis, p, some in zip(axes, positions, inside, strict=True)]
    return clamped, [condition for some in inside for condition in some]


def _pooled_shape(x: Tensor, axes: _Axes) -> tuple[Any, ...]:
    # 64 bits: a fused operator declares the sizes of its operands so.
    return (*x.shape[:2], *(tirx.IntImm("int64", axis.count) for axis in axes))


def _loops_over_planes(kind: str) -> bool:
    """Whether maxima without indices are computed by loops over planes rather than by a reduction.

    On a CPU they are faster: reductions read elements of overlapping windows one by one or in short vectors (3x3
    windows with stride 1 on 64x30x30 took 420 us, with loops over planes 85)."""
    return kind == "cpu"


def _planes() -> Any:
    """The module with loops for the CPU, without which programs from disk do."""
    from meta.backend.tvm.schedule.cpu import max_pool

    return max_pool


def _max(x: Tensor, axes: _Axes, kind: str) -> Any:
    """The maximum of each window."""
    if _loops_over_planes(kind):
        return _planes().largest(x, axes)
    dtype = accumulation_dtype(x.dtype)
    largest = te.comm_reducer(lambda a, b: tirx.Select(_first(a, b, dtype), a, b), lambda _: _lowest(dtype), "max")
    r = _reduction_axes(axes)

    def element(n: Expr, c: Expr, *i: Expr) -> Any:
        position, inside = _element(axes, i, r)
        return largest(_where(inside, widen(x(n, c, *position)), _lowest(dtype)), r)

    return narrow(te.compute(_pooled_shape(x, axes), element, "max_pool"), x.dtype)


def _flat_index(position: list[Any], axes: _Axes, dtype: str) -> Any:
    """The index of a position in the flattened plane.

    Computed in 32 bits if these hold it: GPUs take several instructions for a product of 64."""
    flat = position[0]
    for p, axis in zip(position[1:], axes[1:], strict=True):
        flat = flat * axis.size + p
    is_narrow = 2 * prod(axis.size for axis in axes) < 1 << 31
    return flat.astype("int32").astype(dtype) if is_narrow else flat.astype(dtype)


def _max_with_indices(x: Tensor, axes: _Axes, index: str, kind: str) -> tuple[Any, Any]:
    """The maximum of each window and its flat index: of equal elements the first, of several NaN the last; -1 for a
    window without elements.

    On a GPU a thread reduces pairs of a value and its index. Large windows are divided among the threads of a warp,
    whose results are reduced in a second step. (On a CPU TVM vectorises reductions of pairs wrongly.)"""
    if kind == "cpu":
        return _planes().max_with_indices(x, axes, index)
    lowest, missing = _lowest(accumulation_dtype(x.dtype)), tirx.const(-1, index)
    in_order, in_any_order = (
        te.comm_reducer(combine, lambda *_: (lowest, missing), "max_pair") for combine in (_later, _first_of_equal)
    )
    shape, volume = _pooled_shape(x, axes), prod(axis.kernel for axis in axes)

    def pair(n: Expr, c: Expr, i: Any, r: list[Any]) -> tuple[Any, Any]:
        position, inside = _element(axes, i, r)
        flat = _flat_index(position, axes, index)
        return _where(inside, widen(x(n, c, *position)), lowest), _where(inside, flat, missing)

    if not _divides_windows(axes):
        r = _reduction_axes(axes)
        y, indices = te.compute(shape, lambda n, c, *i: in_order(pair(n, c, i, r), r), "max_pool_with_indices")
        return narrow(y, x.dtype), indices
    step = te.reduce_axis((0, -(-volume // WARP)), "step")

    def part(n: Expr, c: Expr, *i: Expr) -> Any:
        *window, lane = i
        element = tirx.min(step * WARP + lane, volume - 1)  # the last element may be taken several times
        return in_order(pair(n, c, window, _unravel(element, axes)), step)

    values, places = te.compute((*shape, tirx.IntImm("int64", WARP)), part, "max_pool_parts")
    lane = te.reduce_axis((0, WARP), "lane")
    y, indices = te.compute(
        shape, lambda *i: in_any_order((values(*i, lane), places(*i, lane)), lane), "max_pool_with_indices"
    )
    return narrow(y, x.dtype), indices


_Pair = tuple[Any, Any]
"""An element and its flat index; -1 is the index of no element."""


def _later(a: _Pair, b: _Pair) -> _Pair:
    """The maximum of two pairs, b being the later one: a for equal values, b for NaN."""
    (x, i), (y, j) = a, b

    def takes_b(y: Expr) -> Any:
        return tirx.any(_first(y, x, dtype_of(x)), i < 0)

    return _bind(y, lambda y: tirx.Select(takes_b(y), y, x)), _bind(y, lambda y: tirx.Select(takes_b(y), j, i))


def _first_of_equal(a: _Pair, b: _Pair) -> _Pair:
    """The maximum of two pairs in any order: of equal values the first, of NaN the last.

    As an unsigned number the index -1 is the largest."""
    (x, i), (y, j) = a, b
    unsigned = f"u{dtype_of(i)}"

    def takes_b(y: Expr) -> Any:
        larger = tirx.any(y > x, tirx.all(tirx.EQ(y, x), j.astype(unsigned) < i.astype(unsigned)))
        if not dtypes.is_float(dtype_of(x)):
            return larger
        return tirx.any(larger, tirx.all(tirx.isnan(y), tirx.any(tirx.Not(tirx.isnan(x)), j > i)))

    return _bind(y, lambda y: tirx.Select(takes_b(y), y, x)), _bind(y, lambda y: tirx.Select(takes_b(y), j, i))


def _bind(value: Any, body: Callable[[Any], Any]) -> Any:
    """`body` of a variable that holds the value: conditions that load it would be compiled to branches."""
    variable = tirx.Var("value", dtype_of(value))
    return tirx.Let(variable, value, body(variable))


def _divides_windows(axes: _Axes) -> bool:
    """Whether several threads share a window: if windows are large and few in a plane."""
    volume, windows_per_plane = prod(axis.kernel for axis in axes), prod(axis.count for axis in axes)
    return volume >= limits.SHARED_WINDOW and windows_per_plane * WARP <= prod(axis.size for axis in axes)


def _unravel(element: Any, axes: _Axes) -> list[Any]:
    """The position in a window of its element of a flat index."""
    r: list[Any] = []
    for axis in reversed(axes[1:]):
        r.insert(0, tirx.floormod(element, axis.kernel))
        element = tirx.floordiv(element, axis.kernel)
    return [element, *r]


def _max_dx(dy: Tensor, indices: Any, shape: Any, axes: _Axes, kind: str) -> Any:
    if kind == "cpu":
        return _planes().max_dx(dy, indices, shape)

    dtype = dtype_of(indices)

    def share(h: Sequence[Any], n: Expr, c: Expr, window: _Candidate) -> Any:
        """A window that does not cover h has its maximum elsewhere. For one that does not exist, the compared index is
        outside of the plane. (GPUs compute it from positions in 32 bits, once for several channels.)"""
        nearest = window.nearest
        distances = [tirx.max(a - b, b - a) for a, b in zip(window.index, nearest, strict=True) if a is not b]
        outside = [tirx.min(reduce(add, distances), 1) * (axes[0].size + 1)] if distances else []
        index = _flat_index([h[0] - sum(outside), *h[1:]], axes, dtype)
        is_largest = indices(n, c, *nearest) == index
        return opaque_select(is_largest, widen(dy(n, c, *nearest)), tirx.const(0, accumulation_dtype(dy.dtype)))

    return _gather(shape, dy.dtype, axes, share, "max_pool_dx", kind)


@record
class _Candidate:
    """A window that may cover a position. index: by axis.  nearest: of the windows that exist; `index` itself where all
    do.  conditions: that it exists and covers the position."""

    index: list[Any]
    nearest: list[Any]
    conditions: list[Any]


def _gather(shape: Any, dtype: str, axes: _Axes, share: Any, name: str, kind: str) -> Any:
    """The sum, at each position h, of `share(h, n, c, candidate)` over the candidates for windows that cover it."""

    def of_window(n: Expr, c: Expr, h: Any, j: Sequence[Any]) -> Any:
        covering = [axis.covering(p, q) for axis, p, q in zip(axes, h, j, strict=True)]
        index = [window for window, _ in covering]
        nearest = [_within(a, axis.count) if some else a for axis, (a, some) in zip(axes, covering, strict=True)]
        conditions = [condition for _, some in covering for condition in some]
        return share(h, n, c, _Candidate(index, nearest, conditions))

    counts = [axis.candidates for axis in axes]
    if prod(counts) <= (limits.COVERING_WINDOWS if kind == "cuda" else 1):
        terms = [*product(*map(range, counts))]
        return narrow(
            te.compute(shape, lambda n, c, *h: reduce(add, (of_window(n, c, h, j) for j in terms)), name), dtype
        )
    j = [te.reduce_axis((0, count), f"j{a}") for a, count in enumerate(counts)]
    return narrow(te.compute(shape, lambda n, c, *h: te.sum(of_window(n, c, h, j), j), name), dtype)


def _elements(axes: _Axes, i: Any, include_pad: bool, dtype: str) -> Any:
    """The number of elements that window i divides by."""
    total: Any = 1
    for axis, a in zip(axes, i, strict=True):
        total = axis.elements(a, include_pad, tirx.min, tirx.max) * total
    return tirx.const(total, dtype) if isinstance(total, int) else total.astype(dtype)


def _avg(x: Tensor, axes: _Axes, include_pad: bool) -> Any:
    is_integer = dtypes.is_int(str(x.dtype))
    dtype = accumulation_dtype(x.dtype)
    if is_integer:
        dtype = "uint64" if x.dtype == "uint64" else "int64"
    r = _reduction_axes(axes)

    def element(n: Expr, c: Expr, *i: Expr) -> Any:
        place, inside = _element(axes, i, r)
        return te.sum(_where(inside, x(n, c, *place).astype(dtype), tirx.const(0, dtype)), r)

    total = te.compute(_pooled_shape(x, axes), element, "sum_pool")

    def mean(n: Expr, c: Expr, *i: Expr) -> Any:
        divisor = _elements(axes, i, include_pad, dtype)
        if is_integer:
            return tirx.truncdiv(total(n, c, *i), tirx.max(divisor, tirx.const(1, dtype))).astype(x.dtype)
        return (total(n, c, *i) / divisor).astype(x.dtype)

    return te.compute(total.shape, mean, "avg_pool")


def _whole_mean(x: Tensor) -> Any:
    """The mean of each plane, by the schedule of rows."""
    dtype, axes = accumulation_dtype(x.dtype), tuple(range(2, len(x.shape)))
    total = reduce_axes(x, axes, te.sum, elements_of(x, dtype), "sum_pool")
    count = tirx.const(prod(_spatial(x.shape)), dtype)
    return te.compute(total.shape, lambda *i: (total(*i) / count).astype(x.dtype), "avg_pool")


def _avg_dx(dy: Tensor, shape: Any, axes: _Axes, include_pad: bool, kind: str) -> Any:
    dtype = accumulation_dtype(dy.dtype)

    def share(_: Sequence[Any], n: Expr, c: Expr, window: _Candidate) -> Any:
        part = widen(dy(n, c, *window.nearest)) / _elements(axes, window.nearest, include_pad, dtype)
        return _where(window.conditions, part, tirx.const(0, dtype))

    return _gather(shape, dy.dtype, axes, share, "avg_pool_dx", kind)


def max_pool(x: Tensor, *window_args: Any, kind: str) -> Any:
    return _max(x, windows.pool_windows(_spatial(x.shape), *window_args), kind)


def max_pool_with_indices(x: Tensor, *window_args: Any, out: Outs, kind: str) -> Any:
    return _max_with_indices(x, windows.pool_windows(_spatial(x.shape), *window_args), out[1].dtype, kind)


def max_pool_dx(dy: Tensor, indices: Tensor, shape: _Ints, *window_args: Any, out: Outs, kind: str) -> Any:
    extents = out[0].shape
    return _max_dx(dy, indices, extents, windows.pool_windows(_spatial(extents), *window_args), kind)


def avg_pool(x: Tensor, *args: Any) -> Any:
    *window_args, include_pad = args
    return _avg(x, windows.pool_windows(_spatial(x.shape), *window_args), include_pad)


def avg_pool_dx(dy: Tensor, shape: _Ints, *args: Any, out: Outs, kind: str) -> Any:
    *window_args, include_pad = args
    extents = out[0].shape
    return _avg_dx(dy, extents, windows.pool_windows(_spatial(extents), *window_args), include_pad, kind)


def adaptive_max_pool(x: Tensor, size: _Ints, *, out: Outs, kind: str) -> Any:
    return _max(x, windows.adaptive_pool_windows(_spatial(x.shape), _spatial(out[0].shape)), kind)


def adaptive_max_pool_with_indices(x: Tensor, size: _Ints, *, out: Outs, kind: str) -> Any:
    axes = windows.adaptive_pool_windows(_spatial(x.shape), _spatial(out[0].shape))
    return _max_with_indices(x, axes, out[1].dtype, kind)


def adaptive_max_pool_dx(dy: Tensor, indices: Tensor, shape: _Ints, *, out: Outs, kind: str) -> Any:
    extents = out[0].shape
    return _max_dx(dy, indices, extents, windows.adaptive_pool_windows(_spatial(extents), _spatial(dy.shape)), kind)


def adaptive_avg_pool(x: Tensor, size: _Ints, *, out: Outs) -> Any:
    if _spatial(x.shape) and prod(_spatial(out[0].shape)) == 1:
        return _whole_mean(x)
    return _avg(x, windows.adaptive_pool_windows(_spatial(x.shape), _spatial(out[0].shape)), False)


def adaptive_avg_pool_dx(dy: Tensor, shape: _Ints, *, out: Outs, kind: str) -> Any:
    extents = out[0].shape
    if prod(_spatial(dy.shape)) == 1 and str(dy.dtype) != "bfloat16":  # TVM cannot store its short rows as vectors
        share = tirx.const(prod(_spatial(extents)), accumulation_dtype(dy.dtype))
        zeros = [0] * (len(extents) - 2)
        return te.compute(extents, lambda n, c, *_: (widen(dy(n, c, *zeros)) / share).astype(dy.dtype), "avg_pool_dx")
    return _avg_dx(dy, extents, windows.adaptive_pool_windows(_spatial(extents), _spatial(dy.shape)), False, kind)


_COMPUTES = {
    "max_pool{}d": max_pool,
    "max_pool{}d_dx": max_pool_dx,
    "max_pool{}d_with_indices": max_pool_with_indices,
    "avg_pool{}d": avg_pool,
    "avg_pool{}d_dx": avg_pool_dx,
    "adaptive_max_pool{}d": adaptive_max_pool,
    "adaptive_max_pool{}d_dx": adaptive_max_pool_dx,
    "adaptive_max_pool{}d_with_indices": adaptive_max_pool_with_indices,
    "adaptive_avg_pool{}d": adaptive_avg_pool,
    "adaptive_avg_pool{}d_dx": adaptive_avg_pool_dx,
}
for _name, _compute in _COMPUTES.items():
    for _rank in (1, 2, 3):
        compute(_name.format(_rank), generic=False)(_compute)
