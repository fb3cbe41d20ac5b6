"""Programs whose kernels contain several random operators: the bits of eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from tests.python.vm.programs import assert_same

SHAPE = (6, 35)
"""Rows that end in a part of a vector."""


def dropout(x: Any, p: float = 0.5) -> Any:
    return meta.dropout(x, meta.random.next_key(), p)[0]


def normal(x: Any) -> Any:
    return meta.normal(meta.random.next_key(), x.shape, 0.0, 1.0, x.dtype)


def uniform(x: Any) -> Any:
    return meta.uniform(meta.random.next_key(), x.shape, 0.0, 1.0, x.dtype)


def is_chosen(x: Any) -> Any:
    return meta.bernoulli(meta.random.next_key(), x.shape, 0.5, "bool")


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "two dropouts": lambda x: dropout(x) + dropout(x),
    "dropout of dropout": lambda x: dropout(dropout(x), 0.3),
    "normal and dropout": lambda x: x + normal(x) + dropout(x),
    "normal in a condition": lambda x: meta.where(normal(x) < 0.5, x, meta.zeros_like(x)) + normal(x),
    "dropout in a condition": lambda x: meta.where(dropout(x) < dropout(x), dropout(x), normal(x)),
    "masks": lambda x: meta.where(is_chosen(x), x, -x) * meta.where(is_chosen(x), x, dropout(x)),
    "uniform and dropout": lambda x: uniform(x) + dropout(x),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_eager_calls_do(name: str, dtype: str) -> None:
    function = PROGRAMS[name]
    x = meta.array(np.random.default_rng(0).standard_normal(SHAPE).astype("float32"), dtype=dtype)
    meta.random.seed(3)
    expected = function(x).numpy()
    traced = meta.trace(function)
    meta.random.seed(3)
    assert np.array_equal(meta.vm.compile(traced)(x).numpy(), expected)
    meta.random.seed(3)
    assert np.array_equal(traced(x).numpy(), expected)


@pytest.mark.parametrize("size", [511, 512, 800, 1023, 1024, 2049])
def test_programs_of_any_number_of_elements(size: int) -> None:
    """On CPUs, loops over 1024 elements or more have chunks of elements that share random bits."""
    x = meta.array(np.ones((size,), "float32"))
    meta.random.seed(3)
    expected = dropout(x).numpy()
    meta.random.seed(3)
    assert np.array_equal(meta.vm.compile(meta.trace(dropout))(x).numpy(), expected)


@pytest.mark.parametrize("name", ["exp", "expm1", "gelu", "tanh"])
def test_functions_of_random_numbers_compile(name: str) -> None:
    """They took minutes where TVM wrote out the random bits for each use of a variable."""

    def function(x: Any) -> Any:
        return getattr(meta, name)(normal(x) + dropout(x)) + x

    x = meta.array(np.random.default_rng(0).standard_normal(SHAPE).astype("float32"))
    meta.random.seed(3)
    expected = function(x)
    meta.random.seed(3)
    assert_same(meta.vm.compile(meta.trace(function))(x), expected)
