"""Gradient formulas of eager calls as few kernels (meta.eager.fused)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.eager.fused import FusedGradient
from meta.op.grad.rule import GradRule, gradient_rule
from tests.python.kernels_in_memory import kernels_of

X = np.linspace(-2, 2, 24, dtype="float32").reshape(4, 6)


def gradient(function: Callable[..., Any], *arrays: Any, **options: Any) -> list[Any]:
    inputs = [meta.array(a, requires_grad=True) for a in arrays]
    y = function(*inputs)
    return [g.numpy() for g in meta.autograd.grad(y, inputs, [meta.ones(y.shape, y.dtype)], **options)]


def plain(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The gradients by the formulas as they are written."""
    with monkeypatch.context() as patch:
        patch.setattr(FusedGradient, "__call__", lambda self, *args: self.rule.function(*args))
        return gradient(function, *arrays)


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        (lambda x: meta.mish(x), 1),
        (lambda x: meta.softshrink(x, 0.3), 1),
        (lambda x: meta.softshrink(x.cast("float16"), 0.3), 1),
        (lambda x: meta.sinc(x), 1),
        (lambda x: meta.power(x * x + 1, 2.5), 1),
        (lambda x, y: meta.addcdiv(x, y, x * x + 1, 0.5), 2),
        (lambda x, y: meta.divide(x[0], y * y + 1), 2),  # summed over an axis
        (lambda x, y: meta.lerp(x, y[:, :1], 0.25), 2),
        (lambda x, y: meta.hypot(x[:0], y[:0]), 2),  # no elements
        (lambda x, y: meta.xlogy(x[0, 0], y[0, 0] * y[0, 0] + 1), 2),  # no axes
    ],
)
def test_kernels_give_what_the_formulas_give(
    function: Callable[..., Any], operands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = (X, X[::-1] + np.float32(0.1))[:operands]
    for mine, expected in zip(gradient(function, *arrays), plain(monkeypatch, function, *arrays), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-6, atol=1e-7)


def test_shapes_and_numbers_share_a_kernel() -> None:
    for lambd in (0.1, 0.2, 0.3):
        for stop in (2, 3, 4):
            (dx,) = gradient(lambda x, lambd=lambd: meta.hardshrink(x, lambd), X[:stop])
            np.testing.assert_array_equal(dx, np.abs(X[:stop]) > np.float32(lambd))
    assert kernels_of("hardshrink_gradient") == 1


def test_numbers_that_formulas_derive_are_told_apart() -> None:
    for exponent in (2.5, 3.5):
        (dx,) = gradient(lambda x, p=exponent: meta.power(x, p), X * X + 1)
        np.testing.assert_allclose(dx, exponent * (X * X + 1) ** (exponent - 1), rtol=1e-5)
    (dx,) = gradient(lambda x: meta.softshrink(x, -0.0), X)
    np.testing.assert_array_equal(dx, X != 0)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("tanh", lambda x: meta.tanh(x)),
        ("cumsum", lambda x: meta.cumsum(x, 0)),
        ("reshape", lambda x: meta.reshape(x, (24,))),
    ],
)
def test_formulas_in_which_nothing_fuses_run_as_they_are(name: str, function: Callable[..., Any]) -> None:
    gradient(function, X)
    rule = gradient_rule(name)
    assert rule is not None
    assert rule.eager is rule.function


def test_scopes_and_second_gradients_see_the_operators() -> None:
    x = meta.array(X, requires_grad=True)
    (dx,) = meta.autograd.grad(meta.mish(x), [x], [meta.ones(x.shape)], create_graph=True)
    assert dx is not None
    (ddx,) = meta.autograd.grad(dx, [x], [meta.ones(x.shape)])
    assert ddx is not None
    step = 1e-3
    near = [gradient(meta.mish, X.astype("float64") + sign * step)[0] for sign in (1, -1)]
    np.testing.assert_allclose(ddx.numpy(), (near[0] - near[1]) / (2 * step), atol=1e-5)
    y = meta.softsign(x).sum()
    with meta.profiler.profile() as profile:
        y.backward()
    assert "divide" in str(profile)


def test_a_change_of_implementations_drops_the_plans() -> None:
    gradient(meta.mish, X)
    fusion = gradient_rule("mish").eager  # type: ignore[union-attr]
    assert isinstance(fusion, FusedGradient)
    gradient(meta.mish, X)
    assert fusion.plans
    plevel = meta.dialect("torch").plevel
    meta.dialect("torch").set_plevel(plevel)
    assert not fusion.plans


def test_kernels_of_users_run_in_formulas() -> None:
    called: list[str] = []
    mine = meta.register_dialect("mine_in_gradients", plevel=90)
    try:

        @mine.implement("square")
        def square(x: Any, *, out: Any) -> None:
            called.append("square")
            np.multiply(x, x, out=out)

        (dx,) = gradient(meta.tanhshrink, X)
        np.testing.assert_allclose(dx, np.tanh(X) ** 2, rtol=1e-5)
        assert called
    finally:
        meta.unregister_dialect("mine_in_gradients")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, dy: meta.concatenate([dy * meta.tanh(x), x], 0),
        lambda x, dy: meta.matmul(dy * meta.tanh(x), meta.array(X.T)),
    ],
    ids=["a list of tensors", "an array of its own"],
)
def test_functions_without_a_plan_run_as_they_are(function: Callable[..., Any]) -> None:
    rule = GradRule("tanh", lambda needs, x, y, dy: (function(x, dy),), (0,), saved_args=frozenset({0}))
    fusion = FusedGradient(rule)
    x = meta.array(X)
    for _ in range(2):
        (dx,) = fusion((True,), x, x.type, x)
        np.testing.assert_allclose(dx.numpy(), function(x, x).numpy(), rtol=1e-6)
    assert [*fusion.plans.values()] == [None]
