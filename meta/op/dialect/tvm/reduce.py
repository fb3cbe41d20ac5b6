"""TE computes of reductions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, const, is_nan, is_one, safe_divisor, select
from meta.backend.tvm.te.reduce import (
    axes_of,
    count_elements,
    elements_of,
    from_order_key,
    if_extremum,
    order_key,
    position_key,
    prod,
    read_broadcast,
    read_reduced,
    reduce_axes,
    store_result,
)
from meta.backend.tvm.te.running import running_extrema
from meta.backend.tvm.te.scan import Scan
from meta.backend.tvm.workarounds import exact
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


def _reduce_once(name: str, reducer: Callable[[Expr, Any], Any], prepare: Callable[[Any, str], Any]) -> None:
    """Register a reduction of one pass over the elements `prepare(x, result dtype)`."""

    @compute(name)
    def run(x: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
        axes = axes_of(axis, len(x.shape))
        return store_result(
            reduce_axes(x, axes, reducer, prepare(x, out[0].dtype), name), axes, out[0], f"{name}_result"
        )


def _as_result_dtype(x: Tensor, dtype: str) -> Any:
    return elements_of(x, accumulation_dtype(dtype))


def _as_truth_values(x: Tensor, dtype: str) -> Any:
    return lambda *i: cast(x(*i), "bool").astype("uint8")


_reduce_once("sum", te.sum, _as_result_dtype)
_reduce_once("prod", prod, _as_result_dtype)
_reduce_once("all", te.min, _as_truth_values)
_reduce_once("any", te.max, _as_truth_values)


@compute("mean")
def mean(x: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
    axes, dtype = axes_of(axis, len(x.shape)), accumulation_dtype(out[0].dtype)
    total = reduce_axes(x, axes, te.sum, elements_of(x, dtype), "mean_sum")
    return store_result(total, axes, out[0], "mean", lambda value: value / count_elements(x, axes, dtype))


def _extremum(name: str, largest: bool) -> None:
    @compute(name)
    def run(x: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
        axes = axes_of(axis, len(x.shape))
        extremum = _extremum_key(x, axes, order_key, largest)
        return store_result(extremum, axes, out[0], name, lambda key: from_order_key(key, out[0].dtype))


def _extremum_position(name: str, largest: bool) -> None:
    """Register the position of an extremum, in two passes, which vectorise; one pass would reduce pairs (value,
    position) one element at a time."""

    @compute(name, pattern="softmax")
    def run(x: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
        axes = axes_of(axis, len(x.shape))
        extremum = _extremum_key(x, axes, position_key, largest)
        position_dtype = _position_dtype(x, axes)
        largest_position = tirx.const(dtypes.int_range(position_dtype)[1], position_dtype)

        def position(*i: Expr) -> Expr:
            flat: Expr = tirx.const(0, "int64")
            for d in axes:
                flat = flat * x.shape[d] + i[d]
            return if_extremum(x(*i), read_reduced(extremum, axes, i), cast(flat, position_dtype), largest_position)

        return store_result(reduce_axes(x, axes, te.min, position, f"{name}_position"), axes, out[0], name)


def _position_dtype(x: Tensor, axes: tuple[int, ...]) -> str:
    """int32 if the sizes are known to fit: half the work, and TVM fails to narrow loop variables to 32 bits where their
    value is used as int64."""
    sizes = [x.shape[d] for d in axes]
    is_static = all(isinstance(n, tirx.IntImm) for n in sizes)
    return "int32" if is_static and math.prod(int(n) for n in sizes) <= dtypes.int_range("int32")[1] else "int64"


def _extremum_key(x: Tensor, axes: tuple[int, ...], key: Callable[[Expr, bool], Expr], largest: bool) -> Any:
    reducer = te.max if largest else te.min
    return reduce_axes(x, axes, reducer, lambda *i: key(x(*i), largest), "best")


_extremum("max", largest=True)
_extremum("min", largest=False)
_extremum_position("argmax", largest=True)
_extremum_position("argmin", largest=False)


@compute("max_dx", pattern="softmax")
def max_dx(x: Tensor, y: Tensor, dy: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
    ndim, dtype = len(x.shape), accumulation_dtype(out[0].dtype)
    axes = axes_of(axis, ndim)
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)

    def share(*i: Expr) -> Expr:
        # Of an extremum that is NaN, the elements that are.
        is_extremum = tirx.Or(tirx.EQ(x(*i), read_broadcast(y, axes, ndim, i)), is_nan(x(*i)))
        return select(is_extremum, one, zero)

    ties = reduce_axes(x, axes, te.sum, share, "ties")

    def element(*i: Expr) -> Expr:
        return cast(
            share(*i) * cast(read_broadcast(dy, axes, ndim, i), dtype) / read_reduced(ties, axes, i), out[0].dtype
        )

    return te.compute(out[0].shape, element, "max_dx")


@compute("prod_dx", pattern="softmax")
def prod_dx(x: Tensor, dy: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
    """dy times the product of the other elements: the total over x. Zeros and infinities are counted, not multiplied,
    because no division takes them out again."""
    ndim, dtype = len(x.shape), accumulation_dtype(out[0].dtype)
    axes, value = axes_of(axis, len(x.shape)), elements_of(x)
    one, zero, infinity = (tirx.const(v, dtype) for v in (1, 0, math.inf))
    infinity_count = 1 << 31
    """The count of an infinity in the sum in which a zero counts 1."""

    def is_zero(*i: Expr) -> Expr:
        return tirx.EQ(value(*i), zero)

    def is_infinite(*i: Expr) -> Expr:
        return tirx.EQ(tirx.abs(value(*i)), infinity)

    def factor(*i: Expr) -> Expr:
        """The element, 1 for a zero, and the sign of an infinity."""
        sign = select(value(*i) < zero, -one, one)
        return select(is_zero(*i), one, select(is_infinite(*i), sign, value(*i)))

    def count(*i: Expr) -> Expr:
        return select(is_zero(*i), _int64(1), select(is_infinite(*i), _int64(infinity_count), _int64(0)))

    counts = reduce_axes(x, axes, te.sum, count, "counts")
    product = reduce_axes(x, axes, prod, factor, "factors")

    def element(*i: Expr) -> Expr:
        others = read_reduced(product, axes, i) / factor(*i)
        rest = read_reduced(counts, axes, i) - count(*i)
        has_zero = tirx.NE(rest & _int64(infinity_count - 1), _int64(0))
        has_infinity = rest >= _int64(infinity_count)
        is_undefined = tirx.Or(tirx.And(has_zero, has_infinity), tirx.isnan(others))
        with_zero = select(is_undefined, tirx.const(math.nan, dtype), zero)
        partial = select(has_zero, with_zero, select(has_infinity, others * infinity, others))
        return cast(partial * cast(read_broadcast(dy, axes, ndim, i), dtype), out[0].dtype)

    return te.compute(out[0].shape, element, "prod_dx")


def _int64(value: int) -> Expr:
    return tirx.const(value, "int64")


@compute("logsumexp", pattern="softmax")
def logsumexp(x: Tensor, axis: Any, keepdims: bool, *, out: Outs) -> Any:
    dtype = accumulation_dtype(out[0].dtype)
    axes, value = axes_of(axis, len(x.shape)), elements_of(x, dtype)
    # A row maximum of NaN or +-inf is replaced by 0: inf - inf would be NaN, and NaN still reaches the sum.
    infinity = tirx.const(float("inf"), dtype)
    maximum = reduce_axes(x, axes, te.max, value, "highest")

    def offset(*i: Expr) -> Expr:
        row_maximum = read_reduced(maximum, axes, i)
        return select(tirx.abs(row_maximum) < infinity, row_maximum, tirx.const(0, dtype))

    total = reduce_axes(x, axes, te.sum, lambda *i: te_math.exp(value(*i) - offset(*i)), "total")
    result = te.compute(total.shape, lambda *i: te_math.log(total(*i)) + offset(*i), "logarithm")
    return store_result(result, axes, out[0], "logsumexp")


_SUM_SCALE = {"float32": 2.0**-40, "float64": 2.0**-200}
"""The factor of differences whose sum could overflow. What it makes subnormal has squares of 0."""
_SQUARE_SCALE = {"float32": 2.0**-100, "float64": 2.0**-600}
"""The factor of differences whose squares overflow."""


def _moment(name: str, is_root: bool) -> None:
    """Register the variance, or its root, which is computed from smaller differences where the variance overflows."""

    @compute(name, pattern="softmax", lift=("correction",))
    def run(x: Tensor, axis: Any, correction: float, keepdims: bool, *, out: Outs) -> Any:
        dtype = accumulation_dtype(out[0].dtype)
        axes, value = axes_of(axis, len(x.shape)), elements_of(x, dtype)
        size = count_elements(x, axes, dtype)
        half, scale = const(size, 0.5), const(size, 2 * _SUM_SCALE[dtype])

        def first(*i: Expr) -> Expr:
            return value(*(0 if d in axes else index for d, index in enumerate(i))) * half

        def halved(*i: Expr) -> Expr:
            return value(*i) * half

        # The mean is the mean of the differences from the first element, plus that element: a sum of large numbers
        # would lose the digits in which they differ. It is the sum of two floats, because one of them cannot hold it.
        # All are halved, because differences of large numbers overflow.
        total = reduce_axes(x, axes, te.sum, lambda *i: exact.subtract(halved(*i), first(*i)) * scale, f"{name}_sum")
        offset = te.compute(total.shape, lambda *i: total(*i) / size / scale, f"{name}_offset")

        def centred(*i: Expr) -> Expr:
            start, rest = first(*i), read_reduced(offset, axes, i)
            high = exact.add(start, rest)
            low = exact.subtract(rest, exact.subtract(high, start))
            return exact.subtract(exact.subtract(halved(*i), high), low)

        def squares(factor: float, stage: str) -> Any:
            def element(*i: Expr) -> Expr:
                difference = centred(*i) * const(size, 2 * factor)
                return difference * difference

            return reduce_axes(x, axes, te.sum, element, f"{name}_{stage}")

        freedom = safe_divisor(tirx.max(size - const(size, correction), const(size, 0)))
        variance = squares(1.0, "squares")
        if not is_root:
            return store_result(variance, axes, out[0], name, lambda value: value / freedom)
        factor = _SQUARE_SCALE[dtype]
        scaled = squares(factor, "scaled_squares")

        def root(*i: Expr) -> Expr:
            is_infinite = tirx.EQ(variance(*i), const(size, math.inf))
            by_scale = tirx.sqrt(scaled(*i) / freedom) * const(size, 1 / factor)
            return select(is_infinite, by_scale, tirx.sqrt(variance(*i) / freedom))

        return store_result(te.compute(variance.shape, root, "std_root"), axes, out[0], name)


_moment("var", is_root=False)
_moment("std", is_root=True)


def _scan(name: str, combine: Callable[[Expr, Expr], Expr], start: float, is_sum: bool = False) -> None:
    @compute(name, pattern="opaque")
    def run(x: Tensor, axis: int, exclusive: bool, reverse: bool, *, out: Outs, kind: str) -> Any:
        dtype = str(out[0].dtype)
        by_halves = is_sum and dtype != "float64"
        return Scan(combine, start, axis % max(len(x.shape), 1), exclusive, reverse, dtype, by_halves).of(x, kind)


_scan("cumprod", operator.mul, 1)
_scan("cumsum", operator.add, 0, is_sum=True)


def _log_add_exp(total: Expr, x: Expr) -> Expr:
    """log(exp(total) + exp(x)), of the larger one and the difference; infinities and NaN as they are."""
    is_total = tirx.any(total >= x, tirx.isnan(total))
    high, low = select(is_total, total, x), select(is_total, x, total)
    is_infinite = tirx.EQ(tirx.abs(high), const(high, math.inf))
    return select(is_infinite, high, high + te_math.log(const(high, 1) + te_math.exp(low - high)))


_scan("logcumsumexp", _log_add_exp, -math.inf)


def _running(name: str, largest: bool) -> None:
    @compute(name, pattern="opaque")
    def run(x: Tensor, axis: int, *, kind: str) -> Any:
        return running_extrema(x, axis % max(len(x.shape), 1), largest, lambda e: position_key(e, largest), kind)


_running("cummax", largest=True)
_running("cummin", largest=False)


@compute("sum_to", sizes=("shape",))
def sum_to(x: Tensor, shape: tuple[int, ...], *, out: Outs) -> Any:
    target = out[0].shape
    lead = len(x.shape) - len(target)
    axes = tuple(d for d, n in enumerate(x.shape) if d < lead or (is_one(target[d - lead]) and not is_one(n)))
    total = reduce_axes(x, axes, te.sum, elements_of(x), "sum_to_sum")
    return te.compute(target, lambda *i: cast(read_reduced(total, axes, [0] * lead + list(i)), out[0].dtype), "sum_to")
