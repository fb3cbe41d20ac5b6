"""Clipping of gradients by norm and by value, eagerly and in programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import optim
from meta.errors import ArgumentError, GradientError, TraceError
from tests.python.optim.training import Network, assert_equal_weights, run_steps, torch_trajectory

VALUES = [np.array([[3.0, -4.0], [0.5, 0.1]]), np.array([-12.0, 1.0, 0.0])]


def parameters(values: list[np.ndarray] = VALUES, dtype: str = "float64") -> list[Any]:
    arrays = [meta.zeros(value.shape, dtype) for value in values]
    for x, value in zip(arrays, values, strict=True):
        x.requires_grad = True
        x.grad = meta.array(value, dtype=dtype)
    return arrays


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, math.inf])
@pytest.mark.parametrize("max_norm", [1.5, 100.0])
def test_norms_equal_torch(norm_type: float, max_norm: float) -> None:
    ours = [*parameters(), meta.array([0.0], requires_grad=True)]
    theirs = [torch.zeros(value.shape, dtype=torch.float64, requires_grad=True) for value in VALUES]
    for t, value in zip(theirs, VALUES, strict=True):
        t.grad = torch.tensor(value)
    norm = optim.clip_grad_norm(ours, max_norm, norm_type)
    assert norm.item() == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type).item(), rel=1e-12)
    for x, t in zip(ours[:2], theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad, rtol=1e-12)
    assert ours[2].grad is None


def test_values_are_clipped() -> None:
    ours = parameters()
    assert optim.clip_grad_value(ours, 2.0) is None
    for x, value in zip(ours, VALUES, strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), np.clip(value, -2, 2))


def test_norms_of_halves_are_computed_in_float32() -> None:
    ours = parameters([np.full(1000, 100.0), np.full(500, 50.0)], "float16")
    exact = math.sqrt(1000 * 100.0**2 + 500 * 50.0**2)
    norm = optim.clip_grad_norm(ours, 10.0)
    assert norm.dtype == "float32"
    assert norm.item() == pytest.approx(exact, rel=1e-6)
    assert ours[0].grad.dtype == "float16"
    np.testing.assert_allclose(ours[0].grad.numpy(), 100 * 10 / exact, rtol=1e-3)


def test_takes_models_optimizers_and_arrays() -> None:
    model = Network()
    for each in (model, optim.SGD(model), model.first.w, model.parameters()):
        model.first.w.grad = meta.full(model.first.w.shape, 2.0, "float64")
        optim.clip_grad_norm(each, 1.0)
        assert np.linalg.norm(model.first.w.grad.numpy()) == pytest.approx(1.0, rel=1e-5)
    model.zero_grad()
    assert optim.clip_grad_norm(model, 1.0).item() == 0.0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_norms_that_are_not_finite(bad: float) -> None:
    x = parameters([np.array([1.0, bad])])
    with pytest.raises(GradientError, match=rf"\[clip_grad_norm\] the norm of the gradients is {bad}; expected a fi"):
        optim.clip_grad_norm(x, 1.0, error_if_nonfinite=True)
    optim.clip_grad_norm(x, 1.0)
    reference = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    reference.grad = torch.tensor([1.0, bad], dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([reference], 1.0)
    np.testing.assert_array_equal(x[0].grad.numpy(), reference.grad)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: optim.clip_grad_norm(x, -1.0), r"\[clip_grad_norm\] max_norm is -1.0; expected a number, 0 or more"),
        (lambda x: optim.clip_grad_norm(x, None), r"\[clip_grad_norm\] max_norm is None; expected a number"),
        (lambda x: optim.clip_grad_norm(x, 1.0, 0), r"norm_type is 0; expected a number above 0, or math.inf"),
        (lambda x: optim.clip_grad_value(x, "a"), r"\[clip_grad_value\] clip_value is 'a'; expected a float or an int"),
        (lambda x: optim.clip_grad_value(3, 1.0), r"\[clip_grad_value\] the parameters are int; expected a Model, opt"),
        (lambda x: optim.clip_grad_norm([1.0], 1.0), r"\[clip_grad_norm\] a float is among the parameters; expected a"),
    ],
)
def test_rejects_invalid_arguments(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call(parameters())


@pytest.mark.parametrize("compiled", [False, True])
def test_clipped_training_equals_torch(compiled: bool) -> None:
    def clip(model: Any, i: int) -> None:
        del i
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    expected = torch_trajectory(lambda m: torch.optim.SGD(m.parameters(), 0.5, 0.9), 100, after_backward=clip)
    model = Network()
    optimizer = optim.SGD(model, 0.5, 0.9)
    step: Any = optim.TrainStep(model, optimizer, meta.cross_entropy, clip_norm=0.1, clip_value=0.05)
    run_steps(meta.vm.compile(step) if compiled else step, 100)
    assert_equal_weights(model, expected, rtol=1e-9)


def test_bounds_may_be_inputs_of_programs() -> None:
    w = meta.array(np.ones(4), requires_grad=True)

    def step(x: Any, bound: Any) -> Any:
        (w * x).sum().backward()
        norm = optim.clip_grad_norm([w], bound)
        clipped = w.grad
        w.grad = None
        return norm, clipped

    run = meta.vm.compile(meta.trace(step))
    for bound in (1.0, 0.25):
        norm, clipped = run(meta.array(np.ones(4)), meta.array(bound))
        assert norm.item() == 2.0
        np.testing.assert_allclose(clipped.numpy(), bound / 2, rtol=1e-5)
    assert len(run._programs) == 1

    def checked(x: Any) -> None:
        (w * x).sum().backward()
        optim.clip_grad_norm([w], 1.0, error_if_nonfinite=True)

    with pytest.raises(TraceError):
        meta.trace(checked).ir(meta.array(np.ones(4)))
