"""Cached runners: arguments that compare equal but differ run what they say, warm as cold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.eager.call import state
from meta.errors import ArgumentError
from meta.op.registry import get

SIGNED: dict[str, Callable[[Any, Any], meta.NDArray]] = {
    "divide": lambda x, zero: x / zero,
    "atan2": lambda x, zero: meta.atan2(meta.zeros((2,)), zero),
    "full": lambda x, zero: meta.full((2,), zero),
    "pad": lambda x, zero: meta.pad(x, ((1, 1),), zero),
    "threshold": lambda x, zero: meta.threshold(x, 5.0, zero),
}


@pytest.mark.parametrize("zero", [float, np.float64, np.float32])
@pytest.mark.parametrize("name", SIGNED)
def test_zeros_of_both_signs(name: str, zero: Callable[[float], Any]) -> None:
    x = meta.array([1.0, -2.0])
    for _ in "cold", "warm":
        positive, negative = (SIGNED[name](x, zero(value)) for value in (0.0, -0.0))
        assert positive.numpy().tobytes() != negative.numpy().tobytes()


@pytest.mark.parametrize("axis", [(1.0,), (True,), [1.0], [True]])
def test_refused_warm_as_cold(axis: Any) -> None:
    x = meta.ones((2, 3))
    with pytest.raises(ArgumentError, match="argument 'axis' is"):
        meta.sum(x, axis=axis)
    meta.sum(x, axis=(1,))
    with pytest.raises(ArgumentError, match="argument 'axis' is"):
        meta.sum(x, axis=axis)
    with pytest.raises(ArgumentError, match="argument 'axis' is"), meta.no_grad():
        meta.sum(x, axis=axis)


@pytest.mark.parametrize("wrong", [np.zeros(2), meta.zeros((2,)), "0.5", [0.5]])
def test_unsuitable_float(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="argument 'alpha' is"):
        meta.leaky_relu(meta.ones((2,)), wrong)


def test_not_a_number_is_one_key() -> None:
    x = meta.ones((3,))
    meta.threshold(x, 5.0, float("nan"))
    meta.maximum(x, float("nan"))
    counts = [len(getattr(state(get(op)), kind)) for op in ("threshold", "maximum") for kind in ("fast", "scoped")]
    for _ in range(3):
        assert all(math.isnan(v) for v in meta.threshold(x, 5.0, float("nan")).tolist())
        assert all(math.isnan(v) for v in meta.maximum(x, float("nan")).tolist())
    assert counts == [len(getattr(state(get(op)), k)) for op in ("threshold", "maximum") for k in ("fast", "scoped")]


def test_floats_hit_the_fast_path() -> None:
    x = meta.ones((3,))
    for alpha in (0.0, -0.0, 0.25):
        first = meta.leaky_relu(x, alpha)
        count = len(state(get("leaky_relu")).scoped)
        assert (meta.leaky_relu(x, alpha) == first).numpy().all()
        assert len(state(get("leaky_relu")).scoped) == count
