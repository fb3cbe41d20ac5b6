"""Elementwise operators, and special functions (torch.special)."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.dim import SymDim
from meta.dtype import is_complex
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, direct, into
from meta.frontend.torch.aten._values import is_tensor, scaled

ROWS: Rows = {
    "abs": "abs", "absolute": "abs", "allclose": "allclose",
    "addcdiv": direct("addcdiv", tensor1="x1", tensor2="x2"), "addcmul": direct("addcmul", tensor1="x1", tensor2="x2"),
    "copysign": "copysign", "deg2rad": "deg2rad", "erfc": "erfc", "fmax": "fmax",
    "fmin": "fmin", "float_power": "float_power",
    "frac": "frac", "frexp": "frexp", "gcd": "gcd", "isneginf": "isneginf", "isposinf": "isposinf",
    "lcm": "lcm", "ldexp": "ldexp", "logaddexp2": "logaddexp2",
    "logit": "logit", "nan_to_num": "nan_to_num", "nextafter": "nextafter",
    "positive": "positive", "rad2deg": "rad2deg", "signbit": "signbit", "xlogy": "xlogy",
    "acos": "acos", "acosh": "acosh", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "asin": "asin", "asinh": "asinh", "atan": "atan", "atan2": "atan2", "atanh": "atanh",
    "bitwise_and": "bitwise_and", "bitwise_left_shift": "left_shift", "bitwise_not": "bitwise_not",
    "bitwise_or": "bitwise_or", "bitwise_right_shift": "right_shift", "bitwise_xor": "bitwise_xor",
    "ceil": "ceil", "cos": "cos", "cosh": "cosh", "eq": "equal", "erf": "erf", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "floor": "floor", "floor_divide": "floor_divide", "fmod": "trunc_mod", "ge": "greater_equal",
    "greater": "greater", "greater_equal": "greater_equal", "gt": "greater", "hypot": "hypot", "isfinite": "isfinite",
    "isclose": "isclose",
    "isinf": "isinf", "isnan": "isnan", "le": "less_equal", "less": "less", "less_equal": "less_equal", "log": "log",
    "log10": "log10", "log1p": "log1p", "log2": "log2", "logical_and": "logical_and", "logical_not": "logical_not",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "lt": "less", "maximum": "maximum", "minimum": "minimum",
    "mul": "multiply", "multiply": "multiply", "ne": "not_equal", "neg": "negative", "negative": "negative",
    "not_equal": "not_equal", "pow": "power", "reciprocal": "reciprocal", "remainder": "mod", "round": "round",
    "rsqrt": "rsqrt", "equal": "array_equal",
    "sin": "sin", "sinh": "sinh", "sqrt": "sqrt",
    "tan": "tan", "tanh": "tanh", "true_divide": "divide", "trunc": "trunc", "fix": "trunc",
    "add": lambda self, other, *, alpha=1: meta.add(self, scaled(other, alpha)),
    **dict.fromkeys(("sub", "subtract"), lambda self, other, *, alpha=1: meta.subtract(self, scaled(other, alpha))),
    "rsub": lambda self, other, alpha=1: meta.subtract(other, scaled(self, alpha)),
    "clamp_min": lambda self, min: clamp(self, min, None),
    "clamp_max": lambda self, max: clamp(self, None, max),
    "sign": lambda self: self if self.dtype == "bool" else meta.sign(self),
    "sgn": lambda self: self if self.dtype == "bool" else meta.sgn(self),
    **dict.fromkeys(("sigmoid", "special_expit"),
        lambda self: meta.reciprocal(meta.exp(-self) + 1) if is_complex(self.dtype) else meta.sigmoid(self)),
    "square": lambda self: meta.square(meta.cast(self, "int64") if self.dtype == "bool" else self),
    "digamma": "digamma", "erfinv": "erfinv", "i0": "i0", "igamma": "igamma", "igammac": "igammac", "lgamma": "lgamma",
    "mvlgamma": "mvlgamma", "special_digamma": "digamma", "special_entr": "entr", "special_erfc": "erfc",
    "special_erfcx": "erfcx", "special_erfinv": "erfinv", "special_gammainc": "igamma", "special_gammaincc": "igammac",
    "special_gammaln": "lgamma", "special_i0": "i0", "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e",
    "special_log_ndtr": "log_ndtr", "special_logit": "logit", "special_multigammaln": "mvlgamma",
    "special_ndtr": "ndtr", "special_ndtri": "ndtri", "special_psi": "digamma", "special_round": "round",
    "special_xlog1py": "xlog1py", "special_xlogy": "xlogy",
    "special_zeta": direct("zeta", self="x1", other="x2"),
    "special_erf": "erf", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_log1p": "log1p",
    # Overloads put the order first or, as a method, last.
    **dict.fromkeys(("polygamma", "special_polygamma"),
        lambda n, self: meta.polygamma(n, self) if isinstance(n, int) else meta.polygamma(self, n)),
}  # fmt: skip


@into(ROWS, "div", "divide")
def div(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    functions = {None: meta.divide, "trunc": meta.trunc_divide, "floor": meta.floor_divide}
    if rounding_mode not in functions:
        raise ArgumentError("div", f"rounding_mode is {rounding_mode!r}", "None, 'trunc' or 'floor'")
    return functions[rounding_mode](self, other)


@into(ROWS, "clamp", "clip")
def clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    """NaN where a bound is NaN, and `max` where `min` exceeds it."""
    if min is None and max is None:
        raise ArgumentError("clamp", "min and max are None", "at least one bound")
    min, max = (meta.full((), b, self.dtype, self.device) if isinstance(b, SymDim) else b for b in (min, max))
    if not is_tensor(min) and not is_tensor(max):
        return meta.clip(self, min, max)
    out = self if min is None else meta.maximum(self, min)
    return out if max is None else meta.minimum(out, max)


@into(ROWS)
def where(condition: Any, self: Any = None, other: Any = None) -> Any:
    if self is None and other is None:
        return meta.nonzero(condition)
    return meta.where(condition, self, other)


@into(ROWS, "sinc", "special_sinc")
def sinc(self: Any) -> Any:
    if not is_complex(self.dtype):
        return meta.sinc(self)
    angle = self * math.pi
    at_zero = meta.equal(self, 0)
    return meta.where(at_zero, 1.0, meta.sin(angle) / meta.where(at_zero, 1.0, angle))


@into(ROWS)
def logaddexp(self: Any, other: Any) -> Any:
    """The complex number with the larger real part is taken out, so that no exponential overflows."""
    if not is_complex(self.dtype) and not is_complex(other.dtype):
        return meta.logaddexp(self, other)
    is_larger = meta.greater_equal(meta.real(self), meta.real(other))
    larger, smaller = meta.where(is_larger, self, other), meta.where(is_larger, other, self)
    real = meta.real(smaller)
    is_same = meta.logical_and(meta.isinf(real), meta.equal(real, meta.real(larger)))  # their difference would be NaN
    difference = meta.where(is_same, (meta.imag(smaller) - meta.imag(larger)) * 1j, smaller - larger)
    return larger + meta.log1p(meta.exp(difference))


@into(ROWS)
def heaviside(self: Any, values: Any) -> Any:
    if self.dtype != values.dtype:
        raise ArgumentError("heaviside", f"self is {self.dtype}, values is {values.dtype}", "one dtype for both")
    return meta.heaviside(self, values)


@into(ROWS)
def lerp(self: Any, end: Any, weight: Any) -> Any:
    others = [end.dtype, *([weight.dtype] if is_tensor(weight) else [])]
    if any(dtype != self.dtype for dtype in others):
        raise ArgumentError("lerp", f"self is {self.dtype}, the others are {others}", "one dtype for all")
    if is_complex(self.dtype):
        return self + (end - self) * weight
    return meta.lerp(self, end, weight)
