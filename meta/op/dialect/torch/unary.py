"""Elementwise operators of one tensor by ATen: for complex numbers, and where its kernels have vector instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import complex_only, vectorised

_SAME_NAME = ("abs", "acosh", "asinh", "exp", "expm1", "isfinite", "isinf", "isnan", "log", "log1p", "logical_not",
              "negative", "reciprocal", "rsqrt", "sqrt", "square", "tanh")  # fmt: skip
_VECTORISED = ("acos", "asin", "atan", "atanh", "cos", "exp2", "log10", "log2", "sin", "tan")


def _hyperbolic(name: str) -> Callable[[Any], Callable[..., Any]]:
    """sinh or cosh; far from 0, where both are half of an exponential, by the square of its root."""
    # From 88.73 on, ATen's sinh and cosh of float32 are infinite, where float32 still has a value.
    near_overflow = 80.0

    def build(torch: Any) -> Callable[..., Any]:
        function = getattr(torch, name)

        def run(x: Any, *, out: Any = None) -> Any:
            result = function(x, out=out)
            if out is None or not x.numel():  # complex results are returned
                return result
            low, high = torch.aminmax(x)
            if not -near_overflow < low <= high < near_overflow:
                root = torch.exp(x.abs() / 2)
                large = root / 2 * root
                signed = torch.copysign(large, x) if name == "sinh" else large
                torch.where(x.abs() > near_overflow, signed, result, out=out)
            return result

        return run

    return build


vectorised({name: name for name in _VECTORISED}, takes_complex=True)
vectorised({name: _hyperbolic(name) for name in ("cosh", "sinh")}, takes_complex=True)
vectorised({"erfc": "erfc"})
complex_only({name: name for name in _SAME_NAME})
complex_only(
    {
        "copy": lambda torch: lambda x: x,
        "one_minus_square": lambda torch: lambda x: (1 - x) * (1 + x),
        "reciprocal_dx": lambda torch: lambda y, dy: -dy * y * y,
        "rsqrt_dx": lambda torch: lambda y, dy: -0.5 * dy * y * y * y,
        "sqrt_dx": lambda torch: lambda y, dy: 0.5 * dy / y,
        "tanh_dx": lambda torch: lambda y, dy: dy * ((1 - y) * (1 + y)),
    }
)
