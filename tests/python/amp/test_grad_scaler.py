"""Loss scaling: small gradients do not vanish in float16, overflows skip the step, the factor adapts."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.optim import SGD
from tests.python.recorded import array, assert_equal


def optimizer_of(w):
    return SGD([("w", w)], learning_rate=0.5)


def test_step_unscales_gradients():
    w, x = array(3, grad=True), array(3, seed=1)
    expected = w.detach() - x * 0.5
    scaler = meta.amp.GradScaler(scale=1024.0)
    scaler.scale((w * x).sum()).backward()
    assert_equal(w.grad, x * 1024.0)
    assert scaler.step(optimizer_of(w))
    assert_equal(w.detach(), expected)


def test_scaling_keeps_small_float16_gradients():
    w, x = array(4, grad=True), meta.full((4,), 1e-4)

    def gradient(scale):
        w.grad = None
        scaler = meta.amp.GradScaler(scale=scale)
        low = (w.cast("float16") * x.cast("float16")).cast("float32") * 1e-5
        scaler.scale(low.sum()).backward()
        scaler.unscale(optimizer_of(w))
        return w.grad.numpy()

    assert np.all(gradient(1.0) == 0)
    np.testing.assert_allclose(gradient(2.0**16), 1e-9, rtol=0.1)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_overflow_skips_the_step_and_lowers_the_factor(bad):
    w, b = array(3, grad=True), array(2, grad=True)
    before = w.detach().numpy().copy()
    optimizer = SGD([("w", w), ("b", b)], learning_rate=0.5, momentum=0.9)
    scaler = meta.amp.GradScaler(scale=8.0, interval=2)
    (w * meta.array(np.array([1.0, bad, 1.0], "float32"))).sum().backward()
    b.grad = meta.ones((2,))
    assert not scaler.step(optimizer)
    np.testing.assert_array_equal(w.detach().numpy(), before)
    assert scaler.factor == 4.0
    assert_equal(optimizer.slots["velocity"]["b"], meta.zeros((2,)))


def test_factor_grows_after_consecutive_finite_steps():
    w = array(3, grad=True)
    scaler = meta.amp.GradScaler(scale=2.0, growth=4.0, backoff=0.25, interval=2)
    factors = []
    for good in (True, True, True, False, True, True):
        w.grad = meta.ones((3,)) if good else meta.full((3,), float("inf"))
        scaler.step(optimizer_of(w))
        factors.append(scaler.factor)
    assert factors == [2.0, 8.0, 8.0, 2.0, 2.0, 8.0]


def test_unscale_runs_once_per_step():
    w = array(3, grad=True)
    optimizer = optimizer_of(w)
    scaler = meta.amp.GradScaler(scale=4.0)
    w.grad = meta.full((3,), 8.0)
    assert scaler.unscale(optimizer)
    assert_equal(w.grad, meta.full((3,), 2.0))
    with pytest.raises(ArgumentError, match=r"\[GradScaler\] unscale is called twice"):
        scaler.unscale(optimizer)
    before = w.detach() * 1.0
    w.grad = meta.full((3,), 1.0)
    scaler.step(optimizer)
    assert_equal(w.detach(), before - 0.5)
    assert scaler.unscale(optimizer)


def test_ignores_parameters_without_gradients():
    w = array(3, grad=True)
    assert meta.amp.GradScaler().step(optimizer_of(w))


def test_saves_and_restores_state():
    scaler = meta.amp.GradScaler(scale=2.0, interval=3)
    w = array(3, grad=True)
    w.grad = meta.ones((3,))
    scaler.step(optimizer_of(w))
    other = meta.amp.GradScaler(interval=3)
    other.load_state_dict(scaler.state_dict())
    assert (other.factor, other.good_steps) == (2.0, 1)
    with pytest.raises(ArgumentError, match=r"the state has \['factor'\]; expected factor and good_steps"):
        other.load_state_dict({"factor": 1.0})


@pytest.mark.parametrize("options", [{"scale": 0}, {"growth": 0.5}, {"backoff": 1.0}, {"backoff": 0}, {"interval": 0}])
def test_rejects_invalid_options(options):
    with pytest.raises(ArgumentError, match=r"\[GradScaler\] scale="):
        meta.amp.GradScaler(**options)


def test_float16_training_matches_float32():
    rng = np.random.default_rng(0)
    x = meta.array(rng.standard_normal((64, 4)).astype("float32"))
    t = x @ meta.array(rng.standard_normal((4, 1)).astype("float32"))

    def train(dtype):
        w = meta.array(np.zeros((4, 1), "float32"))
        w.requires_grad = True
        optimizer, scaler = SGD([("w", w)], learning_rate=0.1), meta.amp.GradScaler(interval=20)
        for _ in range(60):
            w.grad = None
            with meta.amp.autocast(dtype, enabled=dtype != "float32") if dtype != "float32" else meta.enable_grad():
                loss = meta.mse_loss(x @ w, t)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
        return loss.item(), scaler.factor

    exact, _ = train("float32")
    low, factor = train("float16")
    assert low < max(1e-3, 10 * exact)
    assert factor > 0
