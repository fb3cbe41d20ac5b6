"""Activations made of operators, and activations near the limits of their dtype, as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as tf

import meta
from meta.errors import ArgumentError
from meta.testing.arrays import check

X = np.random.default_rng(3).uniform(-8, 8, (2, 4, 3)).astype(np.float32)
SLOPES = np.array([0.1, -0.5, 2.0, 1.0], np.float32)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "glu": (lambda x: meta.glu(x, 1), lambda x: tf.glu(x, 1), [X]),
    "prelu": (meta.prelu, tf.prelu, [X, SLOPES]),
    "prelu-scalar": (meta.prelu, lambda x, w: tf.prelu(x, w), [X, np.float32(0.25).reshape(())]),
    "prelu-of-a-scalar": (meta.prelu, tf.prelu, [X[0, 0, 0], SLOPES[:1]]),
    "relu6": (meta.relu6, tf.relu6, [X]),
    "softmin": (lambda x: meta.softmin(x, 1), lambda x: tf.softmin(x, 1), [X]),
    "rrelu": (meta.rrelu, tf.rrelu, [X]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    ours, theirs, arrays = CASES[name]
    xs = [meta.array(a, requires_grad=True) for a in arrays]
    ts = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, expected = ours(*xs), theirs(*ts)
    check(y, expected.detach().numpy())
    dy = np.random.default_rng(4).uniform(-1, 1, y.shape).astype(np.float32)
    y.backward(meta.array(dy))
    expected.backward(torch.tensor(dy))
    for x, t in zip(xs, ts, strict=True):
        assert t.grad is not None
        check(x.grad, t.grad.numpy())


def test_random_slopes_lie_in_their_range() -> None:
    x = meta.full((200,), -2.0)
    slopes = (meta.rrelu(x, meta.random.next_key(), 0.25, 0.5) / x).numpy()
    assert 0.25 <= slopes.min() < 0.3 < 0.45 < slopes.max() < 0.5


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: meta.glu(meta.ones((2, 3))), "axis -1 of shape (2, 3) has no two halves"),
        (lambda: meta.prelu(meta.ones((2, 3)), meta.ones((2,))), "'weight' has shape (2,), 'x' has (2, 3)"),
        (lambda: meta.prelu(meta.ones((2, 3)), meta.ones((3,), "float64")), "x is float32, weight is float64"),
        (lambda: meta.rrelu(meta.ones((2,)), None, 0.5, 0.25), "lower is 0.5, upper is 0.25"),
    ],
)
def test_errors(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(ArgumentError) as error:
        call()
    assert match in str(error.value)


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("beta", [2.0, -2.0, 0.5])
def test_softplus_scales_no_large_number(beta: float, dialect: str) -> None:
    x = [3e38, -3e38, math.inf, -math.inf, 1e30, -1e30, math.nan]
    with meta.with_dialect(dialect):
        y = meta.softplus(meta.array(x, dtype="float32"), beta)
    exact = tf.softplus(torch.tensor(x, dtype=torch.float64), beta, threshold=700)
    np.testing.assert_allclose(y.numpy(), exact.float().numpy(), rtol=1e-6)


VALUES = [0.0, -0.0, 0.5, -0.5, 3.0, -3.0, 6.0, 1e-4, -1e-4, 20.5, -20.5, 100.0, -100.0, 1e30, math.inf, math.nan]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name",
    ["hardshrink", "hardsigmoid", "hardswish", "hardtanh", "logsigmoid", "mish", "selu", "softshrink", "softsign"],
)
def test_special_values(name: str, dtype: str) -> None:
    """Values and gradients at kinks, where they are one-sided, and far from 0."""
    values = np.array(VALUES, dtype)
    x, t = meta.array(values, requires_grad=True), torch.tensor(values.astype(np.float64), requires_grad=True)
    y, expected = getattr(meta, name)(x), getattr(tf, name)(t)
    tolerance = {"rtol": 3e-6 if dtype == "float32" else 1e-12, "atol": 1e-30}
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), **tolerance)
    finite = np.isfinite(VALUES)  # at infinities, products of 0 and infinity depend on the order of factors
    y.backward(meta.ones_like(y))
    expected.backward(torch.ones_like(expected))
    assert t.grad is not None
    if name == "hardsigmoid":  # torch multiplies by 1/6 in float32
        tolerance["rtol"] = 1e-7
    np.testing.assert_allclose(x.grad.numpy()[finite], t.grad.numpy()[finite], **tolerance)


def test_tanhshrink_keeps_its_digits_near_zero() -> None:
    x = np.array([1e-3, -1e-2, 0.049, 0.051, 2.0], np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(meta.tanhshrink(meta.array(x)).numpy(), wide - np.tanh(wide), rtol=2e-4)
    np.testing.assert_allclose(meta.tanhshrink(meta.array(x[:3])).numpy(), (wide - np.tanh(wide))[:3], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_give_float32(dtype: str) -> None:
    values = np.array([0, 1, 3, 7]).astype(dtype)
    x = np.array(values, np.float32)
    check(meta.softsign(meta.array(values)), tf.softsign(torch.tensor(x)).numpy())
    if dtype != "bool":
        check(meta.tanhshrink(meta.array(values)), tf.tanhshrink(torch.tensor(x)).numpy())


def test_local_response_of_integers_rounds_the_means_down() -> None:
    values = np.arange(24).reshape(2, 4, 3) % 7
    expected = tf.local_response_norm(torch.tensor(values), 3, 0.5, 0.75, 2.0)
    check(meta.local_response_norm(meta.array(values), 3, 0.5, 0.75, 2.0), expected.numpy())
