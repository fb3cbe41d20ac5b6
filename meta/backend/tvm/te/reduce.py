"""Reductions along any axes, and integer keys by which maxima and minima order floats with NaN at one end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.spec import TensorSpec
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, const, is_float, safe_divisor, select

Value = Callable[..., Expr]
"""Index into the unreduced tensor -> element."""


def axes_of(axis: Sequence[int] | int | None, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front; None for all."""
    if axis is None:
        return tuple(range(ndim))
    listed = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % ndim for a in listed)) if ndim else ()


def product_of_sums(a: Expr, b: Expr) -> Expr:
    return a * b


def prod(value: Expr, axis: Any) -> Any:
    """The reducer of products."""
    reducer = te.comm_reducer(product_of_sums, lambda dtype: tirx.const(1, dtype), "prod")
    return reducer(value, axis)


def reduce_axes(x: Tensor, axes: tuple[int, ...], reducer: Callable[[Expr, Any], Any], value: Value, name: str) -> Any:
    """`value(*index)` reduced by `reducer` along `axes` of the shape of x; the axes keep size 1."""
    # Of the same dtype as the other extents: TVM cannot split a block whose loops differ in width.
    one = tirx.const(1, dtype_of(x.shape[0]) if len(x.shape) else "int64")
    shape = [one if d in axes else n for d, n in enumerate(x.shape)]
    if not axes:
        return te.compute(shape, value, name)
    over = {d: te.reduce_axis((0, x.shape[d]), f"{name}_k{d}") for d in axes}

    def element(*i: Expr) -> Any:
        return reducer(value(*(over.get(d, i[d]) for d in range(len(i)))), list(over.values()))

    return te.compute(shape, element, name)


def read_reduced(reduced_tensor: Any, axes: tuple[int, ...], index: Sequence[Any]) -> Expr:
    """The element of a reduced tensor (axes kept) for `index` into the unreduced tensor."""
    return reduced_tensor(*(0 if d in axes else i for d, i in enumerate(index)))


def store_result(
    x: Tensor, axes: tuple[int, ...], out: TensorSpec, name: str, last: Callable[[Expr], Expr] = lambda value: value
) -> Any:
    """The result of a reduction: `last` of each element of x (axes kept), in the shape and dtype of `out`."""
    keeps = len(out.shape) == len(x.shape)

    def element(*i: Expr) -> Expr:
        rest = iter(i)
        index = i if keeps else [0 if d in axes else next(rest) for d in range(len(x.shape))]
        return cast(last(x(*index)), out.dtype)

    return te.compute(out.shape, element, name)


def read_broadcast(y: Tensor, axes: tuple[int, ...], ndim: int, index: Sequence[Any]) -> Expr:
    """The element of a reduced tensor, axes kept or not, for `index` into the unreduced tensor."""
    if len(y.shape) == ndim:
        return read_reduced(y, axes, index)
    return y(*(i for d, i in enumerate(index) if d not in axes))


def elements_of(x: Tensor, dtype: str = "") -> Value:
    """Elements of x in `dtype`, by default in their accumulation dtype."""
    return lambda *i: cast(x(*i), dtype or accumulation_dtype(str(x.dtype)))


# Integer keys in the order of floats. With them, a maximum or minimum returns NaN if there is one, as in torch, and is
# still a plain reduction. The bits of a float are sign and magnitude; NaN gets the key at the searched end.


def order_key(x: Expr, largest: bool) -> Expr:
    """An integer that sorts like x, with NaN as the largest value if `largest`, else as the smallest."""
    if dtype_of(x) == "bool":
        return x.astype("uint8")
    if not dtypes.is_float(dtype_of(x)):
        return x
    x = cast(x, accumulation_dtype(dtype_of(x)))
    # The quiet NaN without payload: its key lies beyond the infinities' keys, and it survives rounding to bfloat16.
    kind, nan = ("int64", 0x7FF8 << 48) if dtype_of(x) == "float64" else ("int32", 0x7FC0 << 16)
    nan_key = tirx.const(nan if largest else ~nan, kind)
    # By bits and not by `select`, which TVM makes branches of, so that no load would overtake the one before it.
    key = _flip(tirx.reinterpret(kind, x))
    is_nan = const(key, 0) - tirx.isnan(x).astype(kind)
    return key ^ ((key ^ nan_key) & is_nan)


def position_key(x: Expr, largest: bool) -> Expr:
    """`order_key` with one key for 0.0 and -0.0, which are equal to operators that return positions."""
    return order_key(select(tirx.EQ(x, const(x, 0)), const(x, 0), x) if is_float(x) else x, largest)


def if_extremum(x: Expr, extremum: Expr, value: Expr, otherwise: Expr) -> Expr:
    """`value` if x, one of several elements, equals the largest or smallest of them, which has the key `extremum`. 0.0
    and -0.0 are equal, and so are NaN. If the extremum is not NaN, none of the elements is."""
    if not is_float(x):
        return select(tirx.EQ(order_key(x, largest=True), extremum), value, otherwise)
    highest = from_order_key(extremum, accumulation_dtype(dtype_of(x)))
    x = cast(x, dtype_of(highest))
    # By bits: of a disjunction, TVM makes branches.
    equal = tirx.EQ(x, highest).astype("int32") | tirx.isnan(x).astype("int32")
    return select(tirx.NE(equal, const(equal, 0)), value, otherwise)


def from_order_key(key: Expr, dtype: str) -> Expr:
    """The value, of `dtype`, whose key is `key`."""
    if dtype == "bool":
        return cast(key, "bool")
    if not dtypes.is_float(dtype):
        return key
    return cast(tirx.reinterpret(accumulation_dtype(dtype), _flip(key)), dtype)


def _flip(bits: Expr) -> Expr:
    """Convert sign and magnitude to two's complement, or back: the conversion is its inverse."""
    kind = dtype_of(bits)
    sign = bits >> tirx.const(dtypes.itemsize(kind) * 8 - 1, kind)
    return bits ^ (sign & const(bits, dtypes.int_range(kind)[1]))


def count_elements(x: Tensor, axes: tuple[int, ...], dtype: str) -> Expr:
    """The number of elements along `axes`, as a float."""
    total: Any = math.prod([x.shape[d] for d in axes], start=tirx.const(1, "int64"))
    return safe_divisor(total.astype(dtype))


def exponentials(x: Tensor, axis: int) -> tuple[Value, Any, Any]:
    """x - max(x) along an axis, its exponentials, and their sum with the axis kept."""
    axes, value = axes_of(axis, len(x.shape)), elements_of(x)
    # The maximum may skip NaN, and is the lowest finite number for a row of -inf: the sum is NaN or 0 all the same.
    maximum = reduce_axes(x, axes, te.max, value, "highest")

    def shifted(*i: Expr) -> Any:
        return value(*i) - read_reduced(maximum, axes, i)

    exps = te.compute(x.shape, lambda *i: te_math.exp_nonpositive(shifted(*i)), "powers")
    return shifted, exps, reduce_axes(x, axes, te.sum, lambda *i: exps(*i), "total")
