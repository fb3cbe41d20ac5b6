"""Loss scaling: small gradients do not vanish in float16, overflows skip the step, the factor adapts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import meta
from meta import tracing
from meta.errors import ArgumentError
from meta.optim import SGD
from tests.python.recorded import array, assert_equal, execute


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
    assert (scaler.factor, scaler.skipped_steps) == (4.0, 1)
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
    other = meta.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert (scaler.skipped_steps, other.skipped_steps) == (1, 1)


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
    with pytest.raises(
        ArgumentError, match=r"the state has \['scale'\]; expected scale, growth_factor, .*_growth_tracker"
    ):
        other.load_state_dict({"scale": 1.0})
    with pytest.raises(ArgumentError, match=r"\[GradScaler\] scale=-2.0"):
        other.load_state_dict(scaler.state_dict() | {"scale": -2.0})
    assert other.factor == 2.0


def test_exchanges_states_with_torch():
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    ours = meta.amp.GradScaler()
    state = theirs.state_dict()
    ours.load_state_dict(state)
    assert (ours.factor, ours.growth, ours.backoff, ours.interval) == (8.0, 3.0, 0.25, 7)
    ours.step(optimizer_of(array(3, grad=True)))
    theirs.load_state_dict(ours.state_dict())
    assert theirs.state_dict() == state | {"_growth_tracker": 1}


def test_a_factor_that_would_overflow_stays():
    scaler = meta.amp.GradScaler(scale=2.0**127, interval=1)
    scaler.step(optimizer_of(array(3, grad=True)))
    assert scaler.factor == 2.0**127


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


def training(clip=False):
    """A step of two layers with momentum in float16, whose argument `factor` can make the gradients infinite, with the
    scaler and all arrays that the step writes."""
    w, v = array(8, 16, seed=1, grad=True), array(16, 1, seed=2, grad=True)
    optimizer = SGD([("w", w), ("v", v)], learning_rate=0.01, momentum=0.9, weight_decay=1e-3)
    scaler = meta.amp.GradScaler(scale=16.0, interval=3)
    counter = meta.zeros((), dtype="int64")

    def step(x, target, factor):
        optimizer.zero_grad()
        with meta.amp.autocast("float16"):
            loss = meta.mse_loss(meta.relu(x @ w) @ v, target)
        scaler.scale(loss * factor).backward()
        if clip:
            scaler.unscale(optimizer)
            for parameter in (w, v):
                parameter.grad = meta.clip(parameter.grad, -0.5, 0.5)
        updated = scaler.step(optimizer)
        counter.update(counter + 1)
        return loss.detach(), updated

    return step, scaler, [*dict(optimizer.named_state()).values(), *dict(scaler.named_state()).values(), counter]


def run_steps(run, state):
    x, target = array(6, 8, seed=3), array(6, 1, seed=4)
    infinite = {3: np.inf, 4: -np.inf, 9: np.nan}
    results = [run(x, target, meta.array(infinite.get(i, 1.0))) for i in range(20)]
    return [[loss.item(), updated.item()] for loss, updated in results], [x.detach().numpy().copy() for x in state]


@pytest.mark.parametrize("clip", [False, True])
def test_traced_steps_skip_and_adapt_as_eager_ones(clip):
    step, scaler, state = training(clip)
    expected = run_steps(step, state)
    assert [updated for _, updated in expected[0]].count(False) == scaler.skipped_steps == 3
    assert scaler.factor != 16.0
    for how in ("interpreter", "vm"):
        step, scaler, state = training(clip)
        run = meta.vm.compile(meta.trace(step))
        if how == "interpreter":
            record = tracing.record(step, (array(6, 8), array(6, 1), array()), {})
            run = functools.partial(execute, record)
        results, arrays = run_steps(run, state)
        assert scaler.skipped_steps == 3
        np.testing.assert_allclose(results, expected[0], rtol=1e-5, err_msg=how)
        for a, b in zip(arrays, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=how)


def test_names_of_the_state_in_a_program():
    step, _, _ = training()
    main = tracing.record(step, (array(6, 8), array(6, 1), array()), {}).main
    updated = {main.params[index].name for index in main.attrs["mutates"].values()}
    assert {"scaler.factor", "scaler.good_steps", "optimizer.w", "optimizer.w.velocity", "counter"} <= updated
    assert "optimizer.learning_rate" not in updated


def test_a_new_interval_reaches_compiled_steps():
    step, scaler, _ = training()
    run, batch = meta.vm.compile(meta.trace(step)), (array(6, 8, seed=3), array(6, 1, seed=4), meta.array(1.0))
    run(*batch)
    scaler.interval = 2
    run(*batch)
    assert (scaler.factor, scaler.good_steps) == (32.0, 0)


def test_an_unfinished_trace_leaves_nothing():
    w = array(3, grad=True)
    optimizer, scaler = optimizer_of(w), meta.amp.GradScaler()

    def broken(x):
        (w * x).sum().backward()
        scaler.unscale(optimizer)
        raise ValueError("stop")

    for _ in range(2):
        with pytest.raises(ValueError, match="stop"):
            tracing.record(broken, (array(3),), {})
    w.grad = meta.ones((3,))
    assert scaler.step(optimizer)
