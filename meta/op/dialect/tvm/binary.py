"""TE computes of elementwise operators of two operands, and of `where`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te.elementwise import (
    Operand,
    bits_of,
    cast,
    compute_dtype,
    const,
    element,
    is_float,
    is_nan,
    is_number,
    let,
    libm,
    rounded_numbers,
    safe_divisor,
    select,
    unequal,
)
from meta.backend.tvm.te.scan import common_divisors, squarings
from meta.backend.tvm.workarounds.exact import opaque
from meta.backend.tvm.workarounds.select import divisor_that_never_traps
from meta.op.dialect.tvm import Registrar

_registrar = Registrar(__file__)
compute, elementwise = _registrar.compute, _registrar.elementwise


def as_bool(x: Expr) -> Expr:
    return cast(x, "bool")


def extremum(is_larger: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """The larger operand by `is_larger`; NaN if either is NaN."""
    if not is_float(a):
        return select(is_larger(a, b), a, b)
    return select(tirx.Or(is_larger(a, b), is_nan(a)), a, b)


def divide(a: Expr, b: Expr) -> Expr:
    return a / safe_divisor(b)


def floor_divide(a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return _divide_integers(a, b, tirx.floordiv, lambda: const(a, 0) - a)

    def quotient_from(r: Expr) -> Expr:
        exact = divide(a - r, b)
        return let(select(_signs_differ(r, b), exact - const(a, 1), exact), round_quotient)

    def round_quotient(quotient: Expr) -> Expr:
        # The exact quotient is an integer; the rounded division may lie slightly below it.
        return let(tirx.floor(quotient), lambda q: with_sign(select(quotient - q > const(q, 0.5), q + const(q, 1), q)))

    def with_sign(q: Expr) -> Expr:
        # A zero has the sign of a / b, whose magnitude is below 1.
        return let(q, lambda q: select(tirx.EQ(q, const(q, 0)), tirx.trunc(divide(a, b) * const(q, 0.5)), q))

    return select(tirx.EQ(b, const(b, 0)), divide(a, b), let(libm("fmod")(a, b), quotient_from))


def mod(a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return _divide_integers(a, b, tirx.floormod, lambda: const(a, 0))

    def remainder_from(r: Expr) -> Expr:
        zero = const(r, 0)
        signed = let(tirx.abs(r), lambda size: select(b < zero, -size, size))
        return select(_signs_differ(r, b), r + b, select(tirx.EQ(r, zero), signed, r))

    return let(libm("fmod")(a, b), remainder_from)


def trunc_divide(a: Expr, b: Expr) -> Expr:
    return tirx.trunc(divide(a, b)) if is_float(a) else _divide_integers(a, b, tirx.truncdiv, lambda: const(a, 0) - a)


def trunc_mod(a: Expr, b: Expr) -> Expr:
    return libm("fmod")(a, b) if is_float(a) else _divide_integers(a, b, tirx.truncmod, lambda: const(a, 0))


def _signs_differ(r: Expr, b: Expr) -> Expr:
    """Whether a nonzero remainder and the divisor have opposite signs."""
    zero = const(b, 0)
    return tirx.Or(tirx.And(r < zero, b > zero), tirx.And(r > zero, b < zero))


def _divide_integers(
    a: Expr, b: Expr, function: Callable[[Expr, Expr], Expr], by_minus_one: Callable[[], Expr]
) -> Expr:
    """An integer division that avoids the two cases that processors trap: by 0, and the least integer by -1.

    by_minus_one: the result for b == -1. Division by 0 gives 0."""
    zero, quotient = const(b, 0), function(a, divisor_that_never_traps(b))
    if not dtype_of(b).startswith("u"):
        quotient = select(tirx.EQ(b, const(b, -1)), by_minus_one(), quotient)
    return select(tirx.EQ(b, zero), zero, quotient)


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -2: lambda x: const(x, 1) / (x * x),
    -1: lambda x: const(x, 1) / x,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
}
"""Exponents with a kernel of products. (0.5 is not the square root: pow(-inf, 0.5) is inf.)"""


@compute("power", constants=tuple(_POWERS))
def power(x1: Operand, x2: Any, *, out: Outs) -> Any:
    dtype = compute_dtype([x1, x2], out[0].dtype)
    x1, x2 = rounded_numbers([x1, x2])
    products = _POWERS.get(x2) if is_number(x2) else None
    if products and (x2 > 0 or dtype in dtypes.FLOATS):
        return te.compute(out[0].shape, lambda *i: cast(products(element(x1, i, dtype)), out[0].dtype), "power")
    if dtype not in dtypes.FLOATS:
        return _integer_power(x1, x2, out[0])
    pow_ = libm("pow")
    return te.compute(
        out[0].shape, lambda *i: cast(pow_(element(x1, i, dtype), element(x2, i, dtype)), out[0].dtype), "power"
    )


def _integer_power(x1: Operand, x2: Operand, out: TensorSpec) -> Any:
    """x1 ** x2 by repeated squaring, modulo 2**bits; for negative exponents the integer part of the value."""
    shape, dtype = out.shape, out.dtype
    unsigned = dtype.startswith("u")
    bits = dtypes.itemsize(dtype) * 8 - (0 if unsigned else 1)
    base = te.compute(shape, lambda *i: element(x1, i, dtype), "base")
    exponent = te.compute(shape, lambda *i: element(x2, i, dtype), "exponent")
    powers = squarings(base, exponent, bits)
    if unsigned:
        return powers
    one, minus_one, zero = (tirx.const(value, dtype) for value in (1, -1, 0))

    def power_element(*i: Expr) -> Expr:
        a, b = base(*i), exponent(*i)
        inverse = select(tirx.EQ(a, minus_one), select(tirx.EQ(b & one, one), minus_one, one), zero)
        return select(b < zero, select(tirx.EQ(a, one), one, inverse), powers(*i))

    return te.compute(shape, power_element, "power")


def left_shift(a: Expr, b: Expr) -> Expr:
    in_range = _is_defined_shift(a, b)
    return select(in_range, a << select(in_range, b, const(b, 0)), const(a, 0))


def right_shift(a: Expr, b: Expr) -> Expr:
    sign_shift = const(b, dtypes.itemsize(dtype_of(a)) * 8 - 1)
    if dtype_of(a).startswith("u"):
        in_range = _is_defined_shift(a, b)
        return select(in_range, a >> select(in_range, b, const(b, 0)), const(a, 0))
    return a >> select(_is_defined_shift(a, b), b, sign_shift)


def _is_defined_shift(a: Expr, b: Expr) -> Expr:
    """Whether 0 <= b < width of a: processors leave other shifts undefined."""
    bits = const(b, dtypes.itemsize(dtype_of(a)) * 8)
    # TVM has no negative unsigned literals, and looks for one when an unsigned number is compared with a literal.
    return b < opaque(bits) if dtypes.is_unsigned(dtype_of(b)) else tirx.And(b >= const(b, 0), b < bits)


def comparison(compare: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """`compare` that also takes booleans, as 0 and 1."""
    return lambda a, b: compare(a.astype("uint8"), b.astype("uint8")) if dtype_of(a) == "bool" else compare(a, b)


greater, less = comparison(tirx.GT), comparison(tirx.LT)

elementwise({
    "add": lambda a, b: tirx.Or(a, b) if dtype_of(a) == "bool" else a + b,
    "atan2": libm("atan2"),
    "bitwise_and": lambda a, b: tirx.And(a, b) if dtype_of(a) == "bool" else a & b,
    "bitwise_or": lambda a, b: tirx.Or(a, b) if dtype_of(a) == "bool" else a | b,
    "bitwise_xor": lambda a, b: comparison(tirx.NE)(a, b) if dtype_of(a) == "bool" else a ^ b,
    "divide": divide,
    "equal": comparison(tirx.EQ),
    "floor_divide": floor_divide,
    "greater": greater,
    "greater_equal": comparison(tirx.GE),
    "hypot": libm("hypot"),
    "left_shift": left_shift,
    "less": less,
    "less_equal": comparison(tirx.LE),
    "logical_and": lambda a, b: tirx.And(as_bool(a), as_bool(b)),
    "logical_or": lambda a, b: tirx.Or(as_bool(a), as_bool(b)),
    "logical_xor": lambda a, b: comparison(tirx.NE)(as_bool(a), as_bool(b)),
    "maximum": partial(extremum, greater),
    "minimum": partial(extremum, less),
    "mod": mod,
    "multiply": lambda a, b: tirx.And(a, b) if dtype_of(a) == "bool" else a * b,
    "not_equal": comparison(unequal),
    "right_shift": right_shift,
    "subtract": lambda a, b: a - b,
    "trunc_divide": trunc_divide,
    "trunc_mod": trunc_mod,
})  # fmt: skip


@compute("where")
def where(condition: Operand, x: Operand, y: Operand, *, out: Outs) -> Any:
    def select_element(*i: Expr) -> Expr:
        # Without arithmetic, halves need no cast to float32.
        return select(element(condition, i, "bool"), element(x, i, out[0].dtype), element(y, i, out[0].dtype))

    return te.compute(out[0].shape, select_element, "where")


_NEXT_BITS = {"bfloat16": 1 << 16, "float16": 1 << 13, "float32": 1, "float64": 1}
"""The unit in the last place among the bits of the dtype in which neighbours are computed."""
_DENORMAL = {"float16": (2.0**-24, 2.0**-14, 65504.0)}
"""Where that dtype has more numbers than the result's: their distance near zero, the end of that range, and the largest
number of the result's."""


@compute("nextafter")
def nextafter(x1: Operand, x2: Operand, *, out: Outs) -> Any:
    dtype = out[0].dtype
    wide = dtypes.accumulation_dtype(dtype)
    x1, x2 = rounded_numbers([x1, x2])

    def stepped(a: Expr, b: Expr) -> Expr:
        zero, is_up = const(a, 0), b > a
        is_growing = tirx.Or(tirx.And(is_up, a > zero), tirx.And(a > b, a < zero))
        bits = bits_of(a)
        step = const(bits, _NEXT_BITS[dtype])
        neighbour = tirx.reinterpret(wide, select(is_growing, bits + step, bits - step))
        least = tirx.reinterpret(wide, step)
        if dtype in _DENORMAL:
            distance, end, largest = _DENORMAL[dtype]
            least, size = const(a, distance), tirx.abs(a)
            is_small = tirx.Or(size < const(a, end), tirx.And(size <= const(a, end), tirx.Not(is_growing)))
            near = let(select(is_growing, size + least, size - least), lambda n: select(a < zero, -n, n))
            neighbour = select(is_small, near, neighbour)
            below_infinity = select(a < zero, const(a, -largest), const(a, largest))
            neighbour = select(size > const(a, largest), below_infinity, neighbour)
        moved = select(tirx.EQ(a, zero), select(is_up, least, -least), neighbour)
        return select(tirx.EQ(a, b), b, select(tirx.Or(is_nan(a), is_nan(b)), a + b, moved)).astype(dtype)

    def step_element(*i: Expr) -> Expr:
        return let(element(x1, i, wide), lambda a: let(element(x2, i, wide), lambda b: stepped(a, b)))

    return te.compute(out[0].shape, step_element, "nextafter")


def _divisors(x1: Operand, x2: Operand, out: TensorSpec) -> tuple[Any, Any, Any]:
    """The operands in the dtype and shape of the result, and their greatest common divisors."""
    shape, dtype = out.shape, out.dtype
    a = te.compute(shape, lambda *i: element(x1, i, dtype), "a")
    b = te.compute(shape, lambda *i: element(x2, i, dtype), "b")
    return a, b, common_divisors(a, b)


@compute("gcd")
def gcd(x1: Operand, x2: Operand, *, out: Outs) -> Any:
    return _divisors(x1, x2, out[0])[2]


@compute("lcm")
def lcm(x1: Operand, x2: Operand, *, out: Outs) -> Any:
    a, b, divisors = _divisors(x1, x2, out[0])

    def size(x: Expr) -> Expr:
        return x if dtype_of(x).startswith("u") else select(x < const(x, 0), const(x, 0) - x, x)

    def multiple(*i: Expr) -> Expr:
        return tirx.truncdiv(size(a(*i)), divisor_that_never_traps(divisors(*i))) * size(b(*i))

    return te.compute(out[0].shape, multiple, "lcm")
