"""Special functions by ATen, whose kernels have vector instructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import vectorised


def _ndtr(torch: Any) -> Callable[..., Any]:
    """By erfc in float64: torch's loses the digits of small results."""
    return lambda x, *, out: torch.mul(torch.erfc(x.double() * -math.sqrt(0.5)), 0.5, out=out)


vectorised({"erfinv": "erfinv", "ndtr": _ndtr, "ndtri": "special.ndtri"})
