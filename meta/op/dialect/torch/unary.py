"""Elementwise operators of one tensor by ATen: for complex numbers, and where its kernels have vector instructions."""

from __future__ import annotations

from meta.op.dialect.torch import complex_only, vectorised

_SAME_NAME = ("abs", "acosh", "asinh", "atanh", "cosh", "exp", "expm1", "isfinite", "isinf", "isnan", "log", "log1p",
              "logical_not", "negative", "reciprocal", "rsqrt", "sinh", "sqrt", "square", "tanh")  # fmt: skip
_VECTORISED = ("acos", "asin", "atan", "cos", "exp2", "log10", "log2", "sin", "tan")
"""Without sinh and cosh, which are infinite in ATen from 88.73 on, where float32 still has a value."""

vectorised({name: name for name in _VECTORISED}, takes_complex=True)
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
