"""TE computes of elementwise operators of two operands, and of the choice between two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from meta import dtype as dtypes
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import (
    cast,
    compute_dtype,
    const,
    element,
    elementwise,
    is_float,
    is_nan,
    is_number,
    let,
    libm,
    select,
    unequal,
)
from meta.op.dialect.tvm._intrinsic import dtype_of
from meta.op.dialect.tvm._register import compute
from meta.op.dialect.tvm._scan import squarings

Expr = Any


def truth(x: Expr) -> Expr:
    return cast(x, "bool")


def extremum(better: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """NaN wins: where a is NaN the second comparison is not asked."""
    if not is_float(a):
        return select(better(a, b), a, b)
    return select(tirx.Or(better(a, b), is_nan(a)), a, b)


def extremum_dx(better: Callable[[Expr, Expr], Expr], a: Expr, b: Expr, dy: Expr) -> Expr:
    """Both operands keep their gradient where they do not compare, with NaN."""
    return select(tirx.EQ(a, b), dy * const(dy, 0.5), select(better(b, a), const(dy, 0), dy))


def floor_divide(a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return _divided(a, b, tirx.floordiv, lambda: const(a, 0) - a)

    def body(r: Expr) -> Expr:
        exact = (a - r) / b
        return let(select(_other_sign(r, b), exact - const(a, 1), exact), rounded)

    def rounded(quotient: Expr) -> Expr:
        # It is an integer but for the rounding of the division, which can put it a little below.
        return let(tirx.floor(quotient), lambda q: select(quotient - q > const(q, 0.5), q + const(q, 1), q))

    return select(tirx.EQ(b, const(b, 0)), a / b, let(libm("fmod")(a, b), body))


def mod(a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return _divided(a, b, tirx.floormod, lambda: const(a, 0))
    return let(libm("fmod")(a, b), lambda r: select(_other_sign(r, b), r + b, r))


def trunc_divide(a: Expr, b: Expr) -> Expr:
    return tirx.trunc(a / b) if is_float(a) else _divided(a, b, tirx.truncdiv, lambda: const(a, 0) - a)


def trunc_mod(a: Expr, b: Expr) -> Expr:
    return libm("fmod")(a, b) if is_float(a) else _divided(a, b, tirx.truncmod, lambda: const(a, 0))


def _other_sign(r: Expr, b: Expr) -> Expr:
    """Whether a remainder is not zero and lies on the other side of zero than the divisor."""
    zero = const(b, 0)
    return tirx.Or(tirx.And(r < zero, b > zero), tirx.And(r > zero, b < zero))


def _divided(a: Expr, b: Expr, function: Callable[[Expr, Expr], Expr], by_minus_one: Callable[[], Expr]) -> Expr:
    """An integer division that never meets the two cases which processors trap: by 0, and the least integer by -1."""
    one, zero = const(b, 1), const(b, 0)
    unsigned = dtype_of(b).startswith("u")
    by_zero = tirx.EQ(b, zero)
    if unsigned:
        return select(by_zero, zero, function(a, select(by_zero, one, b)))
    negated = tirx.EQ(b, const(b, -1))
    plain = function(a, select(tirx.Or(by_zero, negated), one, b))
    return select(by_zero, zero, select(negated, by_minus_one(), plain))


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -2: lambda x: const(x, 1) / (x * x),
    -1: lambda x: const(x, 1) / x,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
}
"""Exponents that are compiled in. (0.5 is not the square root: pow(-inf, 0.5) is inf.)"""


@compute("power", constants=tuple(_POWERS))
def power(x1: Any, x2: Any, *, out: Any) -> Any:
    kind = compute_dtype([x1, x2], out[0].dtype)
    known = _POWERS.get(x2) if is_number(x2) else None
    if known and (x2 > 0 or kind in dtypes.FLOATS):
        return te.compute(out[0].shape, lambda *i: cast(known(element(x1, i, kind)), out[0].dtype), "power")
    if kind not in dtypes.FLOATS:
        return _integer_power(x1, x2, out[0])
    pow_ = libm("pow")
    return te.compute(
        out[0].shape, lambda *i: cast(pow_(element(x1, i, kind), element(x2, i, kind)), out[0].dtype), "power"
    )


def _integer_power(x1: Any, x2: Any, out: Any) -> Any:
    """By squaring, modulo 2**bits like all integer arithmetic; for negative exponents the integer part of the value."""
    shape, kind = out.shape, out.dtype
    unsigned = kind.startswith("u")
    bits = dtypes.itemsize(kind) * 8 - (0 if unsigned else 1)
    base = te.compute(shape, lambda *i: element(x1, i, kind), "base")
    exponent = te.compute(shape, lambda *i: element(x2, i, kind), "exponent")
    powers = squarings(base, exponent, bits)
    if unsigned:
        return powers
    one, minus, zero = (tirx.const(value, kind) for value in (1, -1, 0))

    def whole(*i: Any) -> Expr:
        a, b = base(*i), exponent(*i)
        turned = select(tirx.EQ(a, minus), select(tirx.EQ(b & one, one), minus, one), zero)
        return select(b < zero, select(tirx.EQ(a, one), one, turned), powers(*i))

    return te.compute(shape, whole, "power")


def left_shift(a: Expr, b: Expr) -> Expr:
    inside = _within(a, b)
    return select(inside, a << select(inside, b, const(b, 0)), const(a, 0))


def right_shift(a: Expr, b: Expr) -> Expr:
    last = const(b, dtypes.itemsize(dtype_of(a)) * 8 - 1)
    if dtype_of(a).startswith("u"):
        inside = _within(a, b)
        return select(inside, a >> select(inside, b, const(b, 0)), const(a, 0))
    return a >> select(_within(a, b), b, last)


def _within(a: Expr, b: Expr) -> Expr:
    """Whether a shift of a by b is one that processors define."""
    return tirx.And(b >= const(b, 0), b < const(b, dtypes.itemsize(dtype_of(a)) * 8))


def ordered(compare: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """A comparison, of booleans as of 0 and 1."""
    return lambda a, b: compare(a.astype("uint8"), b.astype("uint8")) if dtype_of(a) == "bool" else compare(a, b)


greater, less = ordered(tirx.GT), ordered(tirx.LT)

elementwise({
    "add": lambda a, b: tirx.Or(a, b) if dtype_of(a) == "bool" else a + b,
    "atan2": libm("atan2"),
    "bitwise_and": lambda a, b: tirx.And(a, b) if dtype_of(a) == "bool" else a & b,
    "bitwise_or": lambda a, b: tirx.Or(a, b) if dtype_of(a) == "bool" else a | b,
    "bitwise_xor": lambda a, b: ordered(tirx.NE)(a, b) if dtype_of(a) == "bool" else a ^ b,
    "divide": lambda a, b: a / b,
    "equal": ordered(tirx.EQ),
    "floor_divide": floor_divide,
    "greater": greater,
    "greater_equal": ordered(tirx.GE),
    "left_shift": left_shift,
    "less": less,
    "less_equal": ordered(tirx.LE),
    "logical_and": lambda a, b: tirx.And(truth(a), truth(b)),
    "logical_or": lambda a, b: tirx.Or(truth(a), truth(b)),
    "logical_xor": lambda a, b: ordered(tirx.NE)(truth(a), truth(b)),
    "maximum": partial(extremum, greater),
    "maximum_dx": partial(extremum_dx, greater),
    "minimum": partial(extremum, less),
    "minimum_dx": partial(extremum_dx, less),
    "mod": mod,
    "multiply": lambda a, b: tirx.And(a, b) if dtype_of(a) == "bool" else a * b,
    "not_equal": ordered(unequal),
    "right_shift": right_shift,
    "subtract": lambda a, b: a - b,
    "trunc_divide": trunc_divide,
    "trunc_mod": trunc_mod,
})  # fmt: skip


@compute("where")
def where(condition: Any, x: Any, y: Any, *, out: Any) -> Any:
    def chosen(*i: Any) -> Expr:
        # No arithmetic happens, so that half floats stay as they are.
        return select(element(condition, i, "bool"), element(x, i, out[0].dtype), element(y, i, out[0].dtype))

    return te.compute(out[0].shape, chosen, "where")
