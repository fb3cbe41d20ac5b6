"""Samples of special functions of errors, normal distributions and Bessel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from meta.testing.samples import Sample, T

UNARY: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "entr": (torch.special.entr, {"low": 0.1, "high": 3}),
    "erfcx": (torch.special.erfcx, {"low": -1, "high": 5}),
    "erfinv": (torch.erfinv, {"low": -0.9, "high": 0.9}),
    "i0": (torch.i0, {"low": -3, "high": 3}),
    "i0e": (torch.special.i0e, {"low": 0.5, "high": 12}),
    "i1": (torch.special.i1, {"low": 0.5, "high": 3}),
    "i1e": (torch.special.i1e, {"low": 0.5, "high": 12}),
    "log_ndtr": (torch.special.log_ndtr, {"low": -6, "high": 3}),
    "ndtr": (torch.special.ndtr, {"low": -4, "high": 4}),
    "ndtri": (torch.special.ndtri, {"low": 0.05, "high": 0.95}),
}
"""Operator -> (reference, range of the sample)."""


def _erfcx_integral(n: int, x: Any) -> Any:
    """By the recurrence, which keeps its digits near 0."""
    before, value = 2 / math.sqrt(math.pi), torch.special.erfcx(x)
    for k in range(1, n + 1):
        before, value = value, (before - 2 * x * value) / (2 * k)
    return value


SAMPLES = [
    *(Sample(name, T(3, 5, **spread), ref=ref) for name, (ref, spread) in UNARY.items()),
    *(Sample("erfcx_integral", n, T(7, low=-1, high=1), ref=_erfcx_integral) for n in (1, 0, 2)),
]
