"""Samples of the gamma function's relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that takes no integers."""
    return lambda x1, x2: function(1.0 * x1, 1.0 * x2)


SAMPLES = [
    Sample("digamma", T(3, 5, low=0.2, high=6), ref=torch.digamma),
    Sample("lgamma", T(3, 5, low=0.2, high=6), ref=torch.lgamma),
    *(Sample("polygamma", n, T(7, low=0.5, high=5), ref=torch.polygamma) for n in (1, 0, 3)),
    Sample("zeta", T(3, 1, low=1.5, high=5), T(3, 4, low=0.5, high=9), ref=_of_floats(torch.special.zeta), grad=False),
    Sample("zeta", 2.0, T(5, low=0.5, high=9), ref=lambda s, q: torch.special.zeta(s, q)),
    *(
        Sample(name, T(3, 1, low=0.5, high=5), T(3, 4, low=0.5, high=9), ref=_of_floats(ref), grad=False)
        for name, ref in {"igamma": torch.special.gammainc, "igammac": torch.special.gammaincc}.items()
    ),
    *(
        Sample(name, 2.5, T(5, low=0.5, high=9), ref=lambda a, x, f=ref: f(torch.tensor(a, dtype=x.dtype), x))
        for name, ref in {"igamma": torch.special.gammainc, "igammac": torch.special.gammaincc}.items()
    ),
]
ERRORS = [
    ErrorCase("polygamma", -1, T(3), error=TypeInferenceError, match="n is -1; expected 0 to 30"),
]
