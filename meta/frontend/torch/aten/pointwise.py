"""Elementwise operators, and special functions (torch.special)."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import SymDim
from meta.dtype import Number, is_complex
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows, same
from meta.frontend.torch.aten._values import is_tensor, scaled_sum

rows({
    **same(
        "abs", "acos", "acosh", "allclose", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
        "bitwise_or", "bitwise_xor", "ceil", "copysign", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv",
        "exp", "exp2", "expm1", "float_power", "floor", "floor_divide", "fmax", "fmin", "frac", "frexp", "gcd",
        "greater", "greater_equal", "hypot", "i0", "igamma", "igammac", "isclose", "isfinite", "isinf", "isnan",
        "isneginf", "isposinf", "lcm", "ldexp", "less", "less_equal", "lgamma", "log", "log10", "log1p", "log2",
        "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "maximum", "minimum",
        "multiply", "mvlgamma", "nan_to_num", "negative", "nextafter", "not_equal", "positive", "rad2deg", "reciprocal",
        "round", "rsqrt", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "xlogy",
    ),
    **{f"special_{name}": name for name in (
        "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expm1", "i0", "i0e", "i1", "i1e", "log1p",
        "log_ndtr", "logit", "ndtr", "ndtri", "round", "xlog1py", "xlogy",
    )},
    "absolute": "abs", "addcdiv": direct("addcdiv", tensor1="x1", tensor2="x2"),
    "addcmul": direct("addcmul", tensor1="x1", tensor2="x2"), "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "eq": "equal", "equal": "array_equal", "fix": "trunc", "fmod": "trunc_mod",
    "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "mul": "multiply", "ne": "not_equal",
    "neg": "negative", "pow": "power", "remainder": "mod", "special_gammainc": "igamma", "special_gammaincc": "igammac",
    "special_gammaln": "lgamma", "special_multigammaln": "mvlgamma", "special_psi": "digamma",
    "special_zeta": direct("zeta", self="x1", other="x2"), "true_divide": "divide",
    "add": lambda self, other, *, alpha=1: scaled_sum(meta.add, self, other, alpha),
    **dict.fromkeys(("sub", "subtract"), lambda self, other, *, alpha=1: scaled_sum(meta.subtract, self, other, alpha)),
    "rsub": lambda self, other, alpha=1: scaled_sum(meta.subtract, other, self, alpha),
    "clamp_min": lambda self, min: clamp(self, min, None),
    "clamp_max": lambda self, max: clamp(self, None, max),
    "sign": lambda self: self if self.dtype == "bool" else meta.sign(self),
    "sgn": lambda self: self if self.dtype == "bool" else meta.sgn(self),
    **dict.fromkeys(("sigmoid", "special_expit"),
        lambda self: meta.reciprocal(meta.exp(-self) + 1) if is_complex(self.dtype) else meta.sigmoid(self)),
    "square": lambda self: meta.square(meta.cast(self, "int64") if self.dtype == "bool" else self),
    # Overloads put the order first or, as a method, last.
    **dict.fromkeys(("polygamma", "special_polygamma"),
        lambda n, self: meta.polygamma(n, self) if isinstance(n, int) else meta.polygamma(self, n)),
})  # fmt: skip


@row("div", "divide")
def div(self: Tensor, other: Tensor | Number, *, rounding_mode: str | None = None) -> Any:
    functions = {None: meta.divide, "trunc": meta.trunc_divide, "floor": meta.floor_divide}
    if rounding_mode not in functions:
        raise ArgumentError("div", f"rounding_mode is {rounding_mode!r}", "None, 'trunc' or 'floor'")
    return functions[rounding_mode](self, other)


@row("clamp", "clip")
def clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    """NaN where a bound is NaN, and `max` where `min` exceeds it."""
    if min is None and max is None:
        raise ArgumentError("clamp", "min and max are None", "at least one bound")
    min, max = (meta.full((), b, self.dtype, self.device) if isinstance(b, SymDim) else b for b in (min, max))
    if not is_tensor(min) and not is_tensor(max):
        return meta.clip(self, min, max)
    out = self if min is None else meta.maximum(self, min)
    return out if max is None else meta.minimum(out, max)


@row()
def where(condition: Any, self: Any = None, other: Any = None) -> Any:
    if self is None and other is None:
        return meta.nonzero(condition)
    return meta.where(condition, self, other)


@row("sinc", "special_sinc")
def sinc(self: Tensor) -> Any:
    if not is_complex(self.dtype):
        return meta.sinc(self)
    angle = self * math.pi
    at_zero = meta.equal(self, 0)
    return meta.where(at_zero, 1.0, meta.sin(angle) / meta.where(at_zero, 1.0, angle))


@row()
def logaddexp(self: Tensor, other: Tensor) -> Any:
    """The complex number with the larger real part is taken out, so that no exponential overflows."""
    if not is_complex(self.dtype) and not is_complex(other.dtype):
        return meta.logaddexp(self, other)
    is_larger = meta.greater_equal(meta.real(self), meta.real(other))
    larger, smaller = meta.where(is_larger, self, other), meta.where(is_larger, other, self)
    real = meta.real(smaller)
    is_same = meta.logical_and(meta.isinf(real), meta.equal(real, meta.real(larger)))  # their difference would be NaN
    difference = meta.where(is_same, (meta.imag(smaller) - meta.imag(larger)) * 1j, smaller - larger)
    return larger + meta.log1p(meta.exp(difference))


@row()
def heaviside(self: Tensor, values: Tensor) -> Any:
    if self.dtype != values.dtype:
        raise ArgumentError("heaviside", f"self is {self.dtype}, values is {values.dtype}", "one dtype for both")
    return meta.heaviside(self, values)


@row()
def lerp(self: Any, end: Any, weight: Any) -> Any:
    others = [end.dtype, *([weight.dtype] if is_tensor(weight) else [])]
    if any(dtype != self.dtype for dtype in others):
        raise ArgumentError("lerp", f"self is {self.dtype}, the others are {others}", "one dtype for all")
    if is_complex(self.dtype):
        return self + (end - self) * weight
    return meta.lerp(self, end, weight)
