"""Declarations of special functions of errors, normal distributions and Bessel. All are computed in float64."""

from __future__ import annotations

from functools import partial

from meta.op.declare._standard import standard_unary

_special = partial(standard_unary, family="special", amp="never")

_special("entr", "-x * log(x); 0 at 0, -inf below.")
_special("erfcx", "exp(x**2) * erfc(x), without underflow.")
_special("erfinv", "The inverse of erf; NaN outside of [-1, 1].")
_special("i0", "The modified Bessel function of the first kind of order 0.")
_special("i0e", "exp(-|x|) * i0(x), without overflow.")
_special("i1", "The modified Bessel function of the first kind of order 1.")
_special("i1e", "exp(-|x|) * i1(x), without overflow.")
_special("log_ndtr", "log(ndtr(x)), without underflow.")
_special("ndtr", "The distribution function of the standard normal distribution.")
_special("ndtri", "The inverse of ndtr; NaN outside of [0, 1].")
