"""Elementwise operators of two operands and `where` by ATen: for complex numbers, and where its kernels have vector
instructions."""

from __future__ import annotations

import operator

from meta.op.dialect.torch import complex_only, vectorised

complex_only(
    {
        "add": lambda torch: operator.add,
        "divide": lambda torch: operator.truediv,
        "equal": lambda torch: operator.eq,
        "multiply": lambda torch: operator.mul,
        "not_equal": lambda torch: operator.ne,
        "subtract": lambda torch: operator.sub,
    },
    promote=True,
)
complex_only({"where": "where"})
vectorised({name: name for name in ("atan2", "floor_divide", "hypot")})
vectorised({"power": "pow"}, takes_complex=True, promote=True)
