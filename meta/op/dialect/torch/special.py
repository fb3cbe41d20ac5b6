"""Special functions by ATen, whose kernels have vector instructions."""

from __future__ import annotations

from meta.op.dialect.torch import vectorised

vectorised({"erfinv": "erfinv", "ndtri": "special.ndtri"})
