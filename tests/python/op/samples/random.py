"""Samples of random operators. Their values are tested in tests/python/random; here, their ranges and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


SAMPLES = [
    *(Sample("uniform", KEY, (3, 40), -2.0, 3.0, d, check=within(-2, 3)) for d in FLOATS),
    Sample("uniform", KEY, (), check=within(0, 1)),
    Sample("uniform", KEY, (2, 0), check=within(0, 1)),
    *(Sample("normal", KEY, (3, 40), 5.0, 0.5, d, check=within(0, 10)) for d in FLOATS),
    *(Sample("randint", KEY, (3, 40), 2, 7, d, check=within(2, 7)) for d in ("int64", "int32", "uint8")),
    Sample("randint", KEY, (50,), -(2**61), 2**62, check=within(-(2**61), 2**62)),
    *(Sample("bernoulli", KEY, (3, 40), 0.5, d, check=within(0, 2)) for d in ("float32", "bool", "int64")),
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
]
