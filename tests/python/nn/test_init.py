"""Initialisers: statistics, determinism, and equality with torch's formulas."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import nn
from meta.errors import ArgumentError
from meta.nn import init

SHAPE = (60, 40, 3)
FAN_IN, FAN_OUT = 120, 180


def drawn(function: Any, *args: Any, shape: tuple[int, ...] = SHAPE, **kwargs: Any) -> np.ndarray[Any, Any]:
    x = meta.zeros(shape)
    x.requires_grad = True
    generator = meta.random.Generator(3)
    assert function(x, *args, generator=generator, **kwargs) is x
    again = function(meta.ones(shape), *args, generator=meta.random.Generator(3), **kwargs)
    np.testing.assert_array_equal(x.detach(), again)
    return x.detach().numpy()


UNIFORM = [
    (init.uniform_, (-2.0, 3.0), {}, (-2.0, 3.0)),
    (init.xavier_uniform_, (), {"gain": 2.0}, 2.0 * math.sqrt(6 / (FAN_IN + FAN_OUT))),
    (init.kaiming_uniform_, (), {"a": math.sqrt(5)}, math.sqrt(3) * math.sqrt(2 / 6) / math.sqrt(FAN_IN)),
    (init.kaiming_uniform_, (), {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(6 / FAN_OUT)),
]
NORMAL = [
    (init.normal_, (1.0, 0.5), {}, 1.0, 0.5),
    (init.xavier_normal_, (), {}, 0.0, math.sqrt(2 / (FAN_IN + FAN_OUT))),
    (init.kaiming_normal_, (), {"nonlinearity": "tanh"}, 0.0, 5 / 3 / math.sqrt(FAN_IN)),
    (init.kaiming_normal_, (), {"mode": "fan_out"}, 0.0, math.sqrt(2) / math.sqrt(FAN_OUT)),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "bounds"), UNIFORM)
def test_uniform_numbers(function: Any, args: Any, kwargs: Any, bounds: Any) -> None:
    low, high = bounds if isinstance(bounds, tuple) else (-bounds, bounds)
    x = drawn(function, *args, **kwargs)
    width = high - low
    assert low <= x.min() < low + 0.01 * width
    assert high - 0.01 * width < x.max() <= high
    assert abs(x.mean() - (low + high) / 2) < 0.02 * width
    assert abs(x.std() - width / math.sqrt(12)) < 0.01 * width


@pytest.mark.parametrize(("function", "args", "kwargs", "mean", "std"), NORMAL)
def test_normal_numbers(function: Any, args: Any, kwargs: Any, mean: float, std: float) -> None:
    x = drawn(function, *args, **kwargs)
    assert abs(x.mean() - mean) < 5 * std / math.sqrt(x.size)
    assert abs(x.std() / std - 1) < 5 / math.sqrt(2 * x.size)
    assert abs((np.abs(x - mean) < std).mean() - 0.6827) < 0.03


def normal_moments(a: float, b: float) -> tuple[float, float]:
    """Mean and standard deviation of a standard normal distribution between a and b, by integration."""
    z = np.linspace(a, b, 200001)
    density = np.exp(-0.5 * (z**2 - min(a * a, b * b) * (a * b > 0)))
    mass = density.sum()
    mean = float((z * density).sum() / mass)
    return mean, math.sqrt(float(((z - mean) ** 2 * density).sum() / mass))


@pytest.mark.parametrize(
    ("mean", "std", "a", "b"),
    [
        (0.0, 1.0, -2.0, 2.0),
        (0.0, 0.02, -2.0, 2.0),
        (1.0, 2.0, 0.5, 9.0),
        (0.0, 1.0, 5.0, 6.0),
        (0.0, 1.0, -40.0, -7.0),
    ],
)
def test_truncated_normal_numbers(mean: float, std: float, a: float, b: float) -> None:
    x = drawn(init.trunc_normal_, mean, std, a, b)
    assert a <= x.min()
    assert x.max() <= b
    low, high = max((a - mean) / std, -50), min((b - mean) / std, 50)
    expected_mean, expected_std = normal_moments(low, high)
    deviation = std * expected_std
    assert abs(x.mean() - mean - std * expected_mean) < 5 * deviation / math.sqrt(x.size)
    assert abs(x.std() / deviation - 1) < 0.1


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (4, 2, 3), (5, 5)])
def test_orthogonal_matrices(shape: tuple[int, ...]) -> None:
    x = drawn(init.orthogonal_, 2.0, shape=shape).reshape(shape[0], -1)
    product = x.T @ x if x.shape[0] >= x.shape[1] else x @ x.T
    np.testing.assert_allclose(product, 4.0 * np.eye(len(product)), atol=1e-5)


def test_constants() -> None:
    layer = nn.Linear(3, 2)
    assert init.zeros_(layer.w) is layer.w
    assert not layer.w.detach().numpy().any()
    assert init.ones_(layer.w).detach().numpy().all()
    assert (init.constant_(layer.b, 0.5).detach().numpy() == 0.5).all()
    np.testing.assert_array_equal(init.eye_(layer.w).detach(), np.eye(2, 3))
    assert layer.w.requires_grad
    assert init.ones_(meta.zeros((2,), "float16")).dtype == "float16"


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"])
def test_gains_equal_the_gains_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the gains are compared with torch's")
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    if name == "leaky_relu":
        assert init.calculate_gain(name, 0.3) == pytest.approx(torch.nn.init.calculate_gain(name, 0.3))


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda: init.xavier_uniform_(meta.zeros((3,))),
            r"\[xavier_uniform_\] 'x' has shape \(3,\); expected at least two ",
        ),
        (lambda: init.kaiming_normal_(meta.zeros((3,))), r"\[kaiming_normal_\] 'x' has shape"),
        (lambda: init.kaiming_normal_(meta.zeros((3, 3)), mode="in"), "mode is 'in'; expected \"fan_in\" or"),  # type: ignore[arg-type]
        (
            lambda: init.kaiming_normal_(meta.zeros((3, 3)), nonlinearity="rel"),
            r"\[calculate_gain\].*did you mean 'relu'",
        ),
        (lambda: init.orthogonal_(meta.zeros((3,))), r"\[orthogonal_\] 'x' has shape \(3,\)"),
        (lambda: init.eye_(meta.zeros((3,))), r"\[eye_\] 'x' has shape \(3,\); expected two axes"),
        (lambda: init.dirac_(meta.zeros((3, 2))), r"\[dirac_\] 'x' has shape \(3, 2\); expected 3, 4 or 5 axes"),
        (
            lambda: init.dirac_(meta.zeros((3, 2, 1)), 2),
            r"\[dirac_\] groups is 2 and 'x' .*; expected a divisor of axis 0",
        ),
        (
            lambda: init.sparse_(meta.zeros((3, 2)), 1.5),
            r"\[sparse_\] .* sparsity is 1.5; expected two axes, and 0 to 1",
        ),
        (
            lambda: init.trunc_normal_(meta.zeros((3,)), a=1, b=0),
            r"\[trunc_normal_\] a is 1, b is 0, std is 1.0; expected",
        ),
    ],
)
def test_errors(use: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        use()


@pytest.mark.parametrize(("shape", "groups"), [((3, 5, 4), 1), ((6, 2, 3, 3), 3), ((4, 2, 1, 3, 2), 2)])
def test_copies_of_channels_equal_the_copies_of_torch(shape: tuple[int, ...], groups: int) -> None:
    expected = torch.nn.init.dirac_(torch.empty(shape), groups)
    np.testing.assert_array_equal(init.dirac_(meta.ones(shape), groups).numpy(), expected.numpy())


def test_columns_have_equally_many_zeros() -> None:
    x = drawn(init.sparse_, 0.3, 2.0, shape=(11, 400))
    assert ((x == 0).sum(0) == 4).all()
    assert (x == 0).sum(1).min() > 80, "other rows in each column"
    assert abs(x[x != 0].std() - 2.0) < 0.1


@pytest.mark.parametrize(("name", "text"), [("eval", "infer_mode()"), ("cuda", 'to("cuda")'), ("half", 'to(dtype="fl')])
def test_methods_of_torch_are_explained(name: str, text: str) -> None:
    model = nn.Linear(2, 3)
    with pytest.raises(AttributeError) as caught:
        getattr(model, name)
    assert str(caught.value).startswith(f"'Linear' object has no attribute '{name}'; write model.{text}")
    with pytest.raises(AttributeError, match=r"'Linear' object has no attribute 'w2'; did you mean 'w'"):
        _ = model.w2
    assert copy.deepcopy(model).w.shape == (3, 2)


def test_apply_initialises_sub_models_first() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    calls: list[Any] = []

    def zero(layer: meta.Model) -> None:
        calls.append(layer)
        if isinstance(layer, nn.Linear):
            init.zeros_(layer.weight)

    assert model.apply(zero) is model
    assert calls == [model[0], model[1][0], model[1], model]
    assert not any(layer.w.detach().numpy().any() for layer in (model[0], model[1][0]))
