"""Samples of random operators. Their values are tested in tests/python/random; here, their ranges and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from meta.dtype import FLOATS
from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

KEY = T(2, dtype="int64", low=0, high=1000)


def within(low: float, high: float) -> Callable[..., None]:
    """Values in [low, high), and more than one of them."""

    def check(result: Any, *_: Any, **__: Any) -> None:
        values = result.astype(np.float64)
        assert np.all((low <= values) & (values < high)), (values.min(), values.max())
        assert values.size < 2 or np.unique(values).size > 1

    return check


def counts(result: Any, _: Any, rates: Any) -> None:
    """Numbers of 0 and more, and none far from its rate."""
    values, rates = result.astype(np.float64), rates.astype(np.float64)
    assert np.all(values >= 0), values.min()
    assert np.all(np.abs(values - rates) <= 8 * np.sqrt(rates + 4) + 0.01 * rates)


def positive(result: Any, *_: Any) -> None:
    assert np.all(result.astype(np.float64) > 0)


def slope(alpha: Any, x: Any) -> Any:
    """The derivative of a gamma distribution's quantile, from that of its distribution function by differences."""
    a, values, step = alpha.double(), x.double(), 2e-3
    p = [torch.special.gammainc(a + k * step, values) for k in (-3, -2, -1, 1, 2, 3)]
    change = (p[5] - p[0] - 9 * (p[4] - p[1]) + 45 * (p[3] - p[2])) / (60 * step)
    density = torch.exp(torch.xlogy(a - 1, values) - values - torch.lgamma(a))
    return (-change / density).to(torch.promote_types(alpha.dtype, x.dtype))


def near(low: float, high: float) -> Any:
    return T(3, 4, low=low, high=high)


SAMPLES = [
    *(Sample("uniform", KEY, (3, 40), -2.0, 3.0, d, check=within(-2, 3)) for d in FLOATS),
    Sample("uniform", KEY, (), check=within(0, 1)),
    Sample("uniform", KEY, (2, 0), check=within(0, 1)),
    *(Sample("normal", KEY, (3, 40), 5.0, 0.5, d, check=within(0, 10)) for d in FLOATS),
    *(Sample("randint", KEY, (3, 40), 2, 7, d, check=within(2, 7)) for d in ("int64", "int32", "uint8")),
    Sample("randint", KEY, (50,), -(2**61), 2**62, check=within(-(2**61), 2**62)),
    *(Sample("bernoulli", KEY, (3, 40), 0.5, d, check=within(0, 2)) for d in ("float32", "bool", "int64")),
    Sample("poisson", KEY, T(3, 40, low=0, high=9), check=counts),
    Sample("poisson", KEY, T(3, 40, low=10, high=300), check=counts),
    Sample("poisson", KEY, T(low=5, high=20), check=counts),
    Sample("poisson", KEY, T(2, 0), check=counts),
    Sample("standard_gamma", KEY, T(3, 40, low=0.3, high=8), check=positive, grad=False),
    Sample("standard_gamma", KEY, T(2, 0), check=positive),
    Sample("standard_gamma_grad", near(0.5, 3), near(0.2, 4), ref=slope),
    Sample("standard_gamma_grad", T(3, 1, low=5, high=9), T(4, low=4, high=12), ref=slope),
]
ERRORS = [
    ErrorCase("uniform", T(2), (3,), error=TypeInferenceError, match="'key' is Tensor"),
    ErrorCase("uniform", KEY, (3,), 1.0, 0.0, error=TypeInferenceError, match="low is 1.0, high is 0.0"),
    ErrorCase("normal", KEY, (3,), 0.0, -1.0, error=TypeInferenceError, match="std is -1.0"),
    ErrorCase("normal", KEY, (3,), dtype="int64", error=TypeInferenceError, match="dtype is int64"),
    ErrorCase("randint", KEY, (3,), 2, 2, error=TypeInferenceError, match="low is 2, high is 2"),
    ErrorCase("randint", KEY, (3,), 0, 300, "uint8", error=TypeInferenceError, match="[0, 300) is asked for in uint8"),
    ErrorCase("randint", KEY, (3,), -(2**62), 2**62, error=TypeInferenceError, match="less than 2**63"),
    ErrorCase("bernoulli", KEY, (3,), 1.5, error=TypeInferenceError, match="p is 1.5"),
    ErrorCase("poisson", KEY, T(3, dtype="int64"), error=TypeInferenceError, match="'rate' has dtype int64"),
    ErrorCase("poisson", T(3), T(3), error=TypeInferenceError, match="'key' is Tensor"),
    ErrorCase("standard_gamma", KEY, T(3, dtype="int64"), error=TypeInferenceError, match="'alpha' has dtype int64"),
    ErrorCase("standard_gamma_grad", T(3), T(2), error=TypeInferenceError, match="(3,) and (2,)"),
]
