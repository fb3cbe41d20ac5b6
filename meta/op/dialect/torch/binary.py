"""Elementwise operators of two operands and `where` by ATen: for complex numbers, and where its kernels have vector
instructions."""

from __future__ import annotations

import operator

from meta.op.dialect.torch import complex_only, vectorised

complex_only(
    {
        "add": lambda torch: operator.add,
        "addcdiv": lambda torch: lambda x, x1, x2, value: x + value * (x1 / x2),
        "addcmul": lambda torch: lambda x, x1, x2, value: x + value * x1 * x2,
        "divide": lambda torch: operator.truediv,
        "equal": lambda torch: operator.eq,
        "logical_and": "logical_and",
        "logical_or": "logical_or",
        "logical_xor": "logical_xor",
        "multiply": lambda torch: operator.mul,
        "not_equal": lambda torch: operator.ne,
        "subtract": lambda torch: operator.sub,
    },
    promote=True,
)
complex_only({"where": "where"})
vectorised({name: name for name in ("atan2", "floor_divide", "hypot")})
vectorised({"power": "pow"}, takes_complex=True, promote=True)
