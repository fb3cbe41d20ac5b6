"""Declarations of the gamma function's relatives. All are computed in float64."""

from __future__ import annotations

from functools import partial

from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import result_dtype, standard_binary, standard_unary
from meta.op.registry import declare
from meta.schema import gamma

_of_one = partial(standard_unary, family="gamma", amp="never")
_of_two = partial(standard_binary, family="gamma", amp="never", result="float")

_of_one("digamma", "The derivative of lgamma; NaN at negative integers.", aliases=("psi",))
_of_one("lgamma", "log(|Gamma(x)|); inf at 0 and negative integers.", aliases=("gammaln",))
_of_two(
    "igamma",
    "The regularized lower incomplete gamma function P(x1, x2): the integral of t**(x1 - 1) exp(-t) from 0 to x2, "
    "divided by Gamma(x1); NaN for negative operands.",
    aliases=("gammainc",),
)
_of_two("igammac", "1 - igamma(x1, x2), accurate where that is close to 0.", aliases=("gammaincc",))
_of_two(
    "zeta",
    "The Hurwitz zeta function: the sum of (x2 + k)**-x1 over k >= 0. inf at x1 = 1 and where x2 is 0 or a negative "
    "integer, NaN for x1 < 1, and for other negative x2 unless x1 is an integer.",
)


@declare("polygamma", schema=gamma.polygamma, pattern="elemwise", amp="never")
def polygamma(n: int, x: TensorType) -> TensorType:
    """The n-th derivative of digamma. Integers and booleans give float32."""
    rules.require(0 <= n <= 30, f"n is {n}", "0 to 30")
    return x.with_dtype(result_dtype("float", x.dtype))
