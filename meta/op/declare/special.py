"""Declarations of special functions of errors, normal distributions and Bessel. All are computed in float64."""

from __future__ import annotations

from functools import partial

from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import result_dtype, standard_unary
from meta.op.registry import declare
from meta.schema import special

_special = partial(standard_unary, family="special", amp="never")

_special("entr", "-x * log(x); 0 at 0, -inf below.")
_special("erfcx", "exp(x**2) * erfc(x), without underflow.")


@declare("erfcx_integral", schema=special.erfcx_integral, pattern="elemwise", amp="never")
def erfcx_integral(n: int, x: TensorType) -> TensorType:
    """exp(x**2) times the n-th repeated integral of erfc from x to infinity; erfcx for n = 0. Its derivative is
    -2 (n + 1) times the next one. Integers and booleans give float32."""
    rules.require(0 <= n <= 30, f"n is {n}", "0 to 30")
    return x.with_dtype(result_dtype("float", x.dtype))


_special("erfinv", "The inverse of erf; NaN outside of [-1, 1].")
_special("i0", "The modified Bessel function of the first kind of order 0.")
_special("i0e", "exp(-|x|) * i0(x), without overflow.")
_special("i1", "The modified Bessel function of the first kind of order 1.")
_special("i1e", "exp(-|x|) * i1(x), without overflow.")
_special("log_ndtr", "log(ndtr(x)), without underflow.")
_special("ndtr", "The distribution function of the standard normal distribution.")
_special("ndtri", "The inverse of ndtr; NaN outside of [0, 1].")
