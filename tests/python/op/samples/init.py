"""Samples of operators that create tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def typed(name: str | None) -> Any:
    return None if name is None else getattr(torch, name)


def one_hot(indices: Any, depth: int, dtype: str = "float32", axis: int = -1) -> Any:
    ones = indices.unsqueeze(-1) == torch.arange(depth)
    return ones.movedim(-1, axis).to(typed(dtype))


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str | None = None) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    return torch.arange(first, last, step, dtype=typed(dtype))


SAMPLES = [
    *(
        Sample(name, shape, dtype, ref=lambda shape, dtype, f=ref: f(shape, dtype=typed(dtype)))
        for name, ref in {"ones": torch.ones, "zeros": torch.zeros}.items()
        for shape, dtype in (((2, 3), "float32"), ((), "int64"), ((0, 2), "bool"), ((3,), "bfloat16"))
    ),
    *(
        Sample(
            "full", shape, value, dtype, ref=lambda shape, value, dtype: torch.full(shape, value, dtype=typed(dtype))
        )
        for shape, value, dtype in (
            ((2, 3), 0.1, "float32"),
            ((2,), 0.1, "float64"),
            ((), 7, "int64"),
            ((3,), True, "bool"),
            ((2,), float("-inf"), "float16"),
            ((4,), 2.7, "int32"),
        )
    ),
    Sample("ones_like", T(2, 3), ref=torch.ones_like),
    Sample("ones_like", T(2, 3), "int32", ref=lambda x, dtype: torch.ones_like(x, dtype=typed(dtype))),
    Sample("zeros_like", T(2, 3), ref=torch.zeros_like),
    Sample("zeros_like", T(), "bool", ref=lambda x, dtype: torch.zeros_like(x, dtype=typed(dtype))),
    Sample("full_like", T(2, 3), 0.5, ref=torch.full_like),
    Sample("full_like", T(2, 3), 3, "int64", ref=lambda x, value, dtype: torch.full_like(x, value, dtype=typed(dtype))),
    *(
        Sample("arange", *args, ref=arange, **kwargs)
        for args, kwargs in (
            ((5,), {}),
            ((2, 7), {}),
            ((7, 2, -2), {}),
            ((0, 1, 0.1), {}),
            ((3.5,), {}),
            ((2, 2), {}),
            ((0, 5), {"dtype": "float64"}),
            ((1, 6, 2), {"dtype": "uint8"}),
        )
    ),
    *(
        Sample(
            "linspace",
            *args,
            ref=lambda a, b, n, dtype="float32": torch.linspace(a, b, n, dtype=typed(dtype)),
            **kwargs,
        )
        for args, kwargs in (((0, 1, 11), {}), ((-2.5, 7, 1), {}), ((3, -3, 7), {"dtype": "float64"}), ((0, 1, 0), {}))
    ),
    Sample("eye", 3, ref=lambda n: torch.eye(n)),
    Sample("eye", 2, 5, "int32", ref=lambda n, m, dtype: torch.eye(n, m, dtype=typed(dtype))),
    Sample("one_hot", T(2, 3, dtype="int64", low=0, high=4), 4, ref=one_hot),
    Sample("one_hot", T(6, dtype="int32", low=-2, high=8), 5, "bool", ref=one_hot, id="outside"),
    Sample("one_hot", T(2, 3, dtype="uint8", low=0, high=4), 4, "int64", 1, ref=one_hot),
    Sample("one_hot", T(dtype="int64", low=0, high=3), 3, axis=0, ref=one_hot),
]
ERRORS = [
    ErrorCase("zeros", (2, -1), error=TypeInferenceError, match="shape (2, -1) has a negative size"),
    ErrorCase("ones", "x", error=ArgumentError, match="argument 'shape' is str"),
    ErrorCase("full", (2,), T(2), error=ArgumentError, match="argument 'fill_value' is"),
    ErrorCase("full", (2,), 300, "int8", error=TypeInferenceError, match="300 does not fit into int8"),
    ErrorCase("full_like", T(2, dtype="int32"), math.nan, error=TypeInferenceError, match="nan does not fit"),
    ErrorCase("arange", 0, 3, 0, error=TypeInferenceError, match="'step' is 0"),
    ErrorCase("arange", float("inf"), error=TypeInferenceError, match="finite numbers"),
    ErrorCase("linspace", 0, 1, -1, error=TypeInferenceError, match="negative size"),
    ErrorCase("one_hot", T(3), 4, error=TypeInferenceError, match="'indices' has dtype float32"),
    ErrorCase("one_hot", T(3, dtype="int64"), 4, axis=2, error=TypeInferenceError, match="axis 2 is out of range"),
]
