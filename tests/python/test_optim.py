"""Optimizers: errors, state, and hyperparameters that change after compilation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import nn, optim
from meta.errors import ArgumentError


def leaf() -> meta.NDArray:
    return meta.array([1.0, 2.0], requires_grad=True)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "a", None, True])
@pytest.mark.parametrize("name", ["learning_rate", "momentum", "weight_decay"])
def test_rejects_hyperparameters_that_are_not_numbers(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"\[optimizer\] {name} is .*; expected a finite number, 0 or more"):
        optim.SGD([leaf()], **{name: value})


def test_accepts_numpy_numbers() -> None:
    optimizer = optim.SGD([leaf()], np.float32(0.5), momentum=np.float64(0.5))
    optimizer.learning_rate = np.int64(1)
    assert (optimizer.learning_rate, optimizer.momentum) == (1.0, 0.5)
    with pytest.raises(ArgumentError, match="learning_rate is -1"):
        optimizer.learning_rate = -1


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (None, "the parameters are NoneType; expected a Model"),
        (lambda x: x, "the parameters are function; expected a Model"),
        (leaf(), "the parameters are NDArray; expected a Model"),
        ([np.ones(3)], "'parameter0' is ndarray; expected arrays"),
        ([("w", None)], "'w' is NoneType"),
        ([("w", leaf()), ("w", leaf())], "occurs twice: w, w"),
        ([leaf()] * 2, "occurs twice: parameter0, parameter1"),
        ([], "there are no parameters"),
    ],
)
def test_rejects_invalid_parameters(parameters: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        optim.SGD(parameters)


def test_rejects_parameters_that_are_computed_or_all_frozen() -> None:
    with pytest.raises(ArgumentError, match="'parameter0' was computed from other arrays"):
        optim.SGD([leaf() * 2.0])
    model = nn.Linear(2, 2)
    for x in model.parameters():
        x.requires_grad = False
    with pytest.raises(ArgumentError, match="none of the 2 parameters requires gradients; expected at least one"):
        optim.SGD(model)
    with pytest.raises(ArgumentError, match="train_mode"):
        optim.SGD(nn.Linear(2, 2).infer_mode())


@pytest.mark.parametrize("compiled", [False, True])
def test_skips_frozen_parameters_until_they_require_gradients(compiled: bool) -> None:
    """As torch, whose optimizers take frozen parameters and update them once they have gradients."""
    model, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    model.load_state_dict({"w": theirs.weight.detach().numpy(), "b": theirs.bias.detach().numpy()})
    model.w.requires_grad = theirs.weight.requires_grad = False
    step: Any = optim.sgd.with_sgd(0.1, 0.9)(model, loss=meta.cross_entropy)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, 0.9)
    assert set(step.optimizer.state_dict()) == {"learning_rate", "b.velocity"}, "no memory for frozen parameters"
    run = meta.vm.compile(step) if compiled else step
    x, target = np.ones((4, 3), "float32"), np.array([0, 1, 1, 0])
    for i in range(6):
        if i == 3:
            model.train_mode().w.requires_grad = theirs.weight.requires_grad = True
            model.train_mode()
        run(meta.array(x), meta.array(target))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)).backward()
        optimizer.step()
        np.testing.assert_allclose(model.w.detach().numpy(), theirs.weight.detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(model.b.detach().numpy(), theirs.bias.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_trains_a_model_that_moved(dtype: str | None, compiled: bool) -> None:
    meta.random.seed(0)
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict({n: v.detach().numpy() for n, v in model.state_dict().items()})
    steps = [optim.sgd.with_sgd(0.1, 0.9)(m, loss=meta.cross_entropy) for m in (model, twin)]
    run = meta.vm.compile(steps[0]) if compiled else steps[0]
    x, target = meta.array(np.ones((4, 3), "float32")), meta.array([0, 1, 1, 0])
    for i in range(4):
        if i == 2:
            model.to("cpu", dtype)
            x = x.to(dtype=dtype)
        run(x, target)
        steps[1](x.cast("float32"), target)
    for name, v in model.named_parameters():
        # The twin stays in float32, whose rounding errors are those of weights up to 1, also in one that is near 0.
        np.testing.assert_allclose(v.detach().numpy(), twin.state_dict()[name].detach().numpy(), rtol=1e-5, atol=1e-7)
    assert steps[0].optimizer.state_dict()["w.velocity"].dtype == (dtype or "float32")


def test_state_round_trips_through_numpy() -> None:
    parameters = [("w", leaf())]
    optimizer = optim.SGD(parameters, 0.1, momentum=0.9)
    (parameters[0][1] * 3.0).sum().backward()
    optimizer.step()
    state = {name: x.numpy().copy() for name, x in optimizer.state_dict().items()}
    other = optim.SGD(parameters, 0.7, momentum=0.9)
    other.load_state_dict(state)
    assert other.learning_rate == pytest.approx(0.1)
    assert other.state_dict()["w.velocity"].tolist() == [3.0, 3.0]
    with pytest.raises(ArgumentError, match=r"'w.velocity' is Tensor\[\(7,\).*expected Tensor\[\(2,\)"):
        other.load_state_dict({"learning_rate": np.float32(0.3), "w.velocity": np.ones(7, "float32")})
    assert other.learning_rate == pytest.approx(0.1), "nothing is written when something does not fit"


@pytest.mark.parametrize("name", ["momentum", "weight_decay", "learning_rate"])
def test_compiled_steps_use_changed_hyperparameters(name: str) -> None:
    x, target = meta.array(np.eye(3), dtype="float32"), meta.array([0, 1, 2])
    model = nn.Linear(3, 3)
    twin = nn.Linear(3, 3)
    twin.load_state_dict({n: v.detach().numpy() for n, v in model.state_dict().items()})
    steps = [optim.sgd.with_sgd(0.1, 0.9, 0.01)(m, loss=meta.cross_entropy) for m in (model, twin)]
    compiled = meta.vm.compile(steps[0])
    for value in (None, 0.5):
        if value is not None:
            for step in steps:
                setattr(step.optimizer, name, value)
        for _ in range(2):
            assert float(compiled(x, target)) == pytest.approx(float(steps[1](x, target)), abs=1e-6)


def test_other_hyperparameters_need_no_program() -> None:
    x, target = meta.array(np.eye(3), dtype="float32"), meta.array([0, 1, 2])
    step = optim.sgd.with_sgd(0.1, 0.9, 0.01)(nn.Linear(3, 3), loss=meta.cross_entropy)
    compiled = meta.vm.compile(step)
    program = compiled.program(x, target)
    for decay in (0.0, 0.02, 0.5):
        step.optimizer.weight_decay, step.optimizer.momentum = decay, 1.0 - decay
        assert (step.optimizer.weight_decay, step.optimizer.momentum) == (decay, 1.0 - decay)
        assert compiled.program(x, target) is program


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_hyperparameters_as_arrays_give_the_bits_of_numbers(dtype: str) -> None:
    dx = meta.array([1.0, -0.5, np.inf, np.nan, 3e-3], dtype=dtype)
    for momentum, decay in ((0.9, 1e-4), (0.0, 0.0), (0.3, 0.0)):
        states = [(dx * 3.0, dx * 0.5) for _ in range(2)]
        meta.sgd(states[0][0], dx, states[0][1], 0.1, momentum, decay)
        factor, decay_array = meta.array(momentum, dtype="float64"), meta.array(decay, dtype="float64")
        meta.sgd(states[1][0], dx, states[1][1], 0.1, factor, decay_array)
        for by_number, by_array in zip(*states, strict=True):
            np.testing.assert_array_equal(by_number.cast("float64").numpy(), by_array.cast("float64").numpy())
