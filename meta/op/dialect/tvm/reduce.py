"""TE computes of reductions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from meta import dtype as dtypes
from meta.op.dialect.tvm import _math
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, const, is_one, select
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._reduce import (
    at,
    axes_of,
    count,
    divisor,
    finish,
    from_order_key,
    order_key,
    prod,
    reduced,
    spread,
    widened,
)
from meta.op.dialect.tvm._register import compute
from meta.op.dialect.tvm._scan import scan

Expr = Any


def _simple(name: str, reducer: Callable[[Expr, Any], Any], prepare: Callable[[Any, str], Any]) -> None:
    """Register a reduction that needs one pass; `prepare(x, result dtype)` gives the elements."""

    @compute(name)
    def run(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        return finish(reduced(x, axes, reducer, prepare(x, out[0].dtype), name), axes, out[0], f"{name}_result")


def _in_result_dtype(x: Any, dtype: str) -> Any:
    return widened(x, wide(dtype))


def _truth(x: Any, dtype: str) -> Any:
    return lambda *i: cast(x(*i), "bool").astype("uint8")


_simple("sum", te.sum, _in_result_dtype)
_simple("prod", prod, _in_result_dtype)
_simple("all", te.min, _truth)
_simple("any", te.max, _truth)


@compute("mean")
def mean(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
    axes, dtype = axes_of(axis, len(x.shape)), wide(out[0].dtype)
    total = reduced(x, axes, te.sum, widened(x, dtype), "mean_sum")
    return finish(total, axes, out[0], "mean", lambda value: value / count(x, axes, dtype))


def _extremum(name: str, largest: bool) -> None:
    @compute(name)
    def run(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        best = _best_key(x, axes, largest)
        return finish(best, axes, out[0], name, lambda key: from_order_key(key, out[0].dtype))

    # Two passes, because the reduction of pairs that one would need runs one element at a time.
    @compute(f"arg{name}", pattern="softmax")
    def run_arg(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        best = _best_key(x, axes, largest)
        kind = _position_dtype(x, axes)
        last = tirx.const(dtypes.int_range(kind)[1], kind)

        def position(*i: Any) -> Expr:
            flat: Expr = tirx.const(0, "int64")
            for d in axes:
                flat = flat * x.shape[d] + i[d]
            return select(tirx.EQ(order_key(x(*i), largest), at(best, axes, i)), cast(flat, kind), last)

        return finish(reduced(x, axes, te.min, position, f"{name}_position"), axes, out[0], f"arg{name}")


def _position_dtype(x: Any, axes: tuple[int, ...]) -> str:
    """32 bits where they are known to do: half the work, and TVM's narrowing of loop variables to 32 bits fails on
    those whose value is used in 64."""
    sizes = [x.shape[d] for d in axes]
    known = all(isinstance(n, tirx.IntImm) for n in sizes)
    return "int32" if known and math.prod(int(n) for n in sizes) <= dtypes.int_range("int32")[1] else "int64"


def _best_key(x: Any, axes: tuple[int, ...], largest: bool) -> Any:
    reducer = te.max if largest else te.min
    return reduced(x, axes, reducer, lambda *i: order_key(x(*i), largest), "best")


_extremum("max", largest=True)
_extremum("min", largest=False)


@compute("max_dx", pattern="softmax")
def max_dx(x: Any, y: Any, dy: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
    ndim, dtype = len(x.shape), wide(out[0].dtype)
    axes = axes_of(axis, ndim)
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)

    def share(*i: Any) -> Expr:
        return select(tirx.EQ(x(*i), spread(y, axes, ndim, i)), one, zero)

    ties = reduced(x, axes, te.sum, share, "ties")

    def element(*i: Any) -> Expr:
        return cast(share(*i) * cast(spread(dy, axes, ndim, i), dtype) / at(ties, axes, i), out[0].dtype)

    return te.compute(out[0].shape, element, "max_dx")


@compute("prod_dx", pattern="softmax")
def prod_dx(x: Any, dy: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
    """The product of the others: the whole one over x, or where an element is 0, the product of all that are not."""
    ndim, dtype = len(x.shape), wide(out[0].dtype)
    axes, value = axes_of(axis, len(x.shape)), widened(x)
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)

    def is_zero(*i: Any) -> Expr:
        return tirx.EQ(value(*i), zero)

    zeros = reduced(x, axes, te.sum, lambda *i: select(is_zero(*i), one, zero), "zeros")
    rest = reduced(x, axes, prod, lambda *i: select(is_zero(*i), one, value(*i)), "rest")

    def element(*i: Any) -> Expr:
        here, others, nulls = is_zero(*i), at(rest, axes, i), at(zeros, axes, i)
        nonzero = select(tirx.EQ(nulls, zero), others / select(here, one, value(*i)), zero)
        partial = select(here, select(tirx.EQ(nulls, one), others, zero), nonzero)
        return cast(partial * cast(spread(dy, axes, ndim, i), dtype), out[0].dtype)

    return te.compute(out[0].shape, element, "prod_dx")


@compute("logsumexp", pattern="softmax")
def logsumexp(x: Any, axis: Any, keepdims: bool, *, out: Any) -> Any:
    dtype = wide(out[0].dtype)
    axes, value = axes_of(axis, len(x.shape)), widened(x, dtype)
    # The largest finite element, so that infinities meet none and NaN shows in the sum.
    infinity = tirx.const(float("inf"), dtype)
    highest = reduced(x, axes, te.max, value, "highest")

    def base(*i: Any) -> Expr:
        found = at(highest, axes, i)
        return select(found < infinity, found, tirx.const(0, dtype))

    total = reduced(x, axes, te.sum, lambda *i: _math.exp(value(*i) - base(*i)), "total")
    result = te.compute(total.shape, lambda *i: _math.log(total(*i)) + base(*i), "logarithm")
    return finish(result, axes, out[0], "logsumexp")


def _moment(name: str, last: Callable[[Expr], Expr]) -> None:
    @compute(name, pattern="softmax")
    def run(x: Any, axis: Any, correction: int, keepdims: bool, *, out: Any) -> Any:
        dtype = wide(out[0].dtype)
        axes, value = axes_of(axis, len(x.shape)), widened(x, dtype)
        number = count(x, axes, dtype)
        total = reduced(x, axes, te.sum, value, f"{name}_sum")
        centre = te.compute(total.shape, lambda *i: total(*i) / number, f"{name}_mean")

        def squared(*i: Any) -> Expr:
            difference = value(*i) - at(centre, axes, i)
            return difference * difference

        squares = reduced(x, axes, te.sum, squared, f"{name}_squares")
        freedom = divisor(tirx.max(number - const(number, correction), const(number, 0)))
        return finish(squares, axes, out[0], name, lambda value: last(value / freedom))


_moment("var", lambda value: value)
_moment("std", tirx.sqrt)


def _scan(name: str, combine: Callable[[Expr, Expr], Expr], start: int) -> None:
    @compute(name, pattern="opaque")
    def run(x: Any, axis: int, exclusive: bool, reverse: bool, *, out: Any) -> Any:
        wider = te.compute(x.shape, widened(x, wide(out[0].dtype)), "element")
        total = scan(wider, axis % max(len(x.shape), 1), exclusive, reverse, combine, start)
        return te.compute(x.shape, lambda *i: cast(total(*i), out[0].dtype), name)


_scan("cumprod", operator.mul, 1)
_scan("cumsum", operator.add, 0)


@compute("sum_to", sizes=("shape",))
def sum_to(x: Any, shape: tuple[int, ...], *, out: Any) -> Any:
    target = out[0].shape
    lead = len(x.shape) - len(target)
    axes = tuple(d for d, n in enumerate(x.shape) if d < lead or (is_one(target[d - lead]) and not is_one(n)))
    total = reduced(x, axes, te.sum, widened(x), "sum_to_sum")
    return te.compute(target, lambda *i: cast(at(total, axes, [0] * lead + list(i)), out[0].dtype), "sum_to")
