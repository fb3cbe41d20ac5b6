"""Optimiser steps follow the trajectories of torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from tests.python.kernels_in_memory import kernels_of

STEPS = 12


def trajectory(make: Callable[[list[Any]], Any], dtype: str) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """An initial value, the gradient of each step, and the final value of torch's optimiser."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(4, 5)).astype(dtype)
    gradients = [rng.normal(size=(4, 5)).astype(dtype) for _ in range(STEPS)]
    x = torch.tensor(start, requires_grad=True)
    optimizer = make([x])
    for g in gradients:
        x.grad = torch.tensor(g)
        optimizer.step()
    return start, gradients, x.detach().numpy()


def assert_close(x: meta.NDArray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12 if x.dtype == "float64" else 3e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}])
def test_sgd(options: dict[str, Any], dtype: str) -> None:
    start, gradients, expected = trajectory(lambda xs: torch.optim.SGD(xs, 0.1, **options), dtype)
    x, v = meta.array(start), meta.zeros((4, 5), dtype)
    for g in gradients:
        x1, v1 = meta.sgd(x, meta.array(g), v, 0.1, **options)
        assert x1 is x
        assert v1 is v
    assert_close(x, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {"decoupled": False}),
        (torch.optim.Adam, {"weight_decay": 0.1, "decoupled": False}),
        (torch.optim.AdamW, {"weight_decay": 0.1, "decoupled": True}),
    ],
)
def test_adam(optimizer: Any, options: dict[str, Any], dtype: str) -> None:
    decay = options.get("weight_decay", 0.0)
    start, gradients, expected = trajectory(lambda xs: optimizer(xs, 0.01, weight_decay=decay), dtype)
    x, m, v = meta.array(start), meta.zeros((4, 5), dtype), meta.zeros((4, 5), dtype)
    for step, g in enumerate(gradients, 1):
        meta.adam(x, meta.array(g), m, v, step, 0.01, **options)
    assert_close(x, expected)


def test_a_tensor_as_learning_rate_needs_one_kernel() -> None:
    x, g, v = meta.ones((3,)), meta.ones((3,)), meta.zeros((3,))
    meta.sgd(x, g, v, meta.array(0.5))
    before = kernels_of("sgd")
    assert before
    for rate in (0.25, 0.125):
        meta.sgd(x, g, v, meta.array(rate))
    assert kernels_of("sgd") == before
    assert x.tolist() == [0.125] * 3


def test_recorded_arrays_are_not_written() -> None:
    x = meta.ones((3,))
    x.requires_grad = True
    with pytest.raises(meta.errors.GradientError, match=r"\[sgd\] the array of shape \(3,\) written in place"):
        meta.sgd(x, meta.ones((3,)), meta.zeros((3,)), 0.1)
    with meta.no_grad():
        meta.sgd(x, meta.ones((3,)), meta.zeros((3,)), 0.5)
    assert x.tolist() == [0.5] * 3


def test_half_parameters_are_updated_in_float32() -> None:
    x = meta.ones((1000,), "float16")
    v = meta.zeros((1000,), "float32")
    meta.sgd(x, meta.ones((1000,), "float16"), v, 2.0**-9)
    assert x.tolist() == [1 - 2.0**-9] * 1000


@pytest.mark.parametrize("shape", [(), (3,)])
def test_betas_in_tensors_keep_their_digits(shape: tuple[int, ...]) -> None:
    """1 - beta is computed in float64, and also for a parameter that is a number without axes."""
    x, zeros = meta.ones(shape), meta.zeros(shape)
    beta = 1 - 1e-9
    numbers = [meta.array(np.float64(n)) for n in (0.1, beta, beta, 0.0, 0.0)]
    with meta.with_dialect("tvm"):
        _, m, v = meta.adam(x, meta.ones(shape), zeros, meta.zeros(shape), None, *numbers)
    for state in (m, v):
        np.testing.assert_allclose(state.numpy(), np.full(shape, 1 - beta), rtol=1e-6)
