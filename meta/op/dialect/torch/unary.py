"""Elementwise operators of one tensor by ATen, for complex numbers."""

from __future__ import annotations

from meta.op.dialect.torch import complex_only

_SAME_NAME = ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "exp2", "expm1",
              "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "negative", "reciprocal", "rsqrt",
              "sin", "sinh", "sqrt", "square", "tan", "tanh")  # fmt: skip

complex_only({name: name for name in _SAME_NAME})
complex_only(
    {
        "copy": lambda torch: lambda x: x,
        "reciprocal_dx": lambda torch: lambda y, dy: -dy * y * y,
        "rsqrt_dx": lambda torch: lambda y, dy: -0.5 * dy * y * y * y,
        "sqrt_dx": lambda torch: lambda y, dy: 0.5 * dy / y,
        "tanh_dx": lambda torch: lambda y, dy: dy * (1 - y * y),
    }
)
