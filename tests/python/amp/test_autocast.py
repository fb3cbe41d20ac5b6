"""Eager autocast runs the same operators on the same dtypes as the AutoCast pass."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import meta
from meta import passes
from meta.errors import ArgumentError, RegistryError
from meta.interpreter.run import run
from meta.ir.analysis import op_counts
from meta.modes import modes, scopes
from tests.python.passes.programs import program
from tests.python.recorded import array, assert_equal

BF16, F16, F32 = "bfloat16", "float16", "float32"


def run_observed(function, *args):
    """The operators that ran, each with its result dtypes, and the result."""
    steps = []

    def observe(call, candidate):
        steps.append((call.op.name, tuple(t.dtype for t in call.outputs())))

    modes.observers = (observe,)
    try:
        return steps, function(*args)
    finally:
        modes.observers = ()


def norm(x, w, g, b):
    y = meta.batch_norm_infer(meta.conv2d(x, w), meta.zeros((4,)), meta.ones((4,)), g, b)
    return meta.avg_pool2d(meta.relu(y), 2), meta.sum(y, (1, 2, 3))


PROGRAMS = {
    "mlp": (lambda x, w, b: meta.log_softmax(meta.relu(x @ w + b) * 2.0), [(2, 3), (3, 4), (4,)]),
    "attention": (
        lambda q, k, v: meta.softmax(q @ k.transpose() * 0.5) @ v, [(4, 8), (4, 8), (4, 8)],
    ),
    "convolution": (norm, [(2, 3, 5, 5), (4, 3, 2, 2), (4,), (4,)]),
    "lists": (lambda x, w: meta.concatenate([x @ w, x, meta.exp(x)], 1), [(2, 3), (3, 4)]),
    "loss": (lambda x, w, t: meta.mse_loss(meta.dense(x, w), t), [(2, 3), (4, 3), (2, 4)]),
    "norm": (lambda x, w, g: meta.layer_norm(meta.gelu(x @ w), g, None), [(2, 3), (3, 4), (4,)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_autocast_runs_the_same_operators_as_the_pass(name, dtype):
    function, shapes = PROGRAMS[name]
    arrays = [array(*s, seed=i) * 0.5 for i, s in enumerate(shapes)]

    def eager():
        with meta.amp.autocast(dtype):
            return function(*arrays)

    module = passes.auto_cast(dtype)(program(function, *shapes))
    eager_steps, result = run_observed(eager)
    program_steps, expected = run_observed(lambda: run(module, *arrays))
    results = result if isinstance(result, tuple) else (result,)
    assert [s for s in eager_steps if s[0] != "cast"] == [s for s in program_steps if s[0] != "cast"]
    assert_equal([r.cast(F32) for r in results], list(expected), rtol=1e-6)


def test_gradients_of_float32_arrays_are_float32():
    x, w, b = array(4, 3), array(3, 2, seed=1, grad=True), array(2, seed=2, grad=True)

    def loss():
        return meta.cross_entropy(meta.relu(x @ w + b), meta.array([0, 1, 1, 0]))

    loss().backward()
    exact = [w.grad, b.grad]
    w.grad = b.grad = None
    with meta.amp.autocast(BF16):
        low = loss()
    assert low.dtype == F32
    low.backward()
    assert [g.dtype for g in (w.grad, b.grad)] == [F32, F32]
    assert_equal([w.grad, b.grad], exact, rtol=3e-2)


def test_scopes_nest_and_restore_the_outer_one():
    x, w = array(2, 3), array(3, 4)
    before = scopes.active
    with meta.amp.autocast(BF16):
        assert (x @ w).dtype == BF16
        with meta.amp.autocast(F16):
            assert (x @ w).dtype == F16
        with meta.amp.autocast(enabled=False):
            assert (x @ w).dtype == F32
            assert (x.cast(BF16) @ w.cast(BF16)).dtype == BF16
        assert (x @ w).dtype == BF16
    assert (x @ w).dtype == F32
    assert scopes.active == before


def test_works_as_a_decorator():
    @meta.amp.autocast(BF16)
    def f(x):
        return x @ x.transpose()

    assert [f(array(2, 3)).dtype for _ in range(2)] == [BF16, BF16]


def test_inner_scopes_inherit_overrides():
    x = array(3, 3)
    with meta.amp.autocast(BF16, {"matmul": "never", "exp": "always"}):
        assert (x @ x).dtype == F32
        assert meta.exp(x).dtype == BF16
        with meta.amp.autocast(BF16, {"matmul": "always"}):
            assert (x @ x).dtype == BF16
            assert meta.exp(x).dtype == BF16
        assert (x @ x).dtype == F32
    with meta.amp.autocast(BF16):
        assert (x @ x).dtype == BF16


def test_rejects_invalid_options():
    with pytest.raises(ArgumentError, match=r"\[autocast\] dtype is 'int8'; expected 'float16', 'bfloat16'"):
        meta.amp.autocast("int8").__enter__()
    with pytest.raises(RegistryError, match=r"none of .* operators is called 'matmull'"):
        meta.amp.autocast(overrides={"matmull": "never"}).__enter__()
    with pytest.raises(ArgumentError, match="the rule of 'matmul' is 3"):
        meta.amp.autocast(overrides={"matmul": 3}).__enter__()


def test_scope_applies_to_its_thread_only():
    x = array(3, 3)
    dtypes = []
    with meta.amp.autocast(BF16):
        thread = threading.Thread(target=lambda: dtypes.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert (x @ x).dtype == BF16
    assert dtypes == [F32]


def test_exceptions_end_the_scope():
    x = array(3, 3)
    with pytest.raises(ZeroDivisionError), meta.amp.autocast(BF16):
        raise ZeroDivisionError
    with meta.amp.autocast(BF16):
        with pytest.raises(meta.errors.TypeInferenceError):
            meta.matmul(x, array(2, 2))
        assert (x @ x).dtype == BF16
    assert modes.autocast is None


def collect_casts(monkeypatch):
    """A list that collects the operands autocast casts from now on."""
    original, operands = meta.cast, []

    def cast(arg, dtype):
        if dtype == BF16:  # decompositions cast to the dtypes of their operands
            operands.append(arg)
        return original(arg, dtype)

    monkeypatch.setattr(meta, "cast", cast)
    return operands


def test_casts_each_parameter_once_per_scope(monkeypatch):
    casts = collect_casts(monkeypatch)
    w, x = array(3, 3, grad=True), array(2, 3, dtype=BF16)
    with meta.amp.autocast(BF16):
        for _ in range(3):
            x @ w
        assert len(casts) == 1
    with meta.amp.autocast(BF16):
        x @ w
    assert len(casts) == 2


def test_casts_parameters_again_after_a_write(monkeypatch):
    casts = collect_casts(monkeypatch)
    w, x = array(3, 3), array(2, 3, dtype=BF16)
    with meta.amp.autocast(BF16):
        first = x @ w
        w.update(w * 2.0)
        second = x @ w
        v = meta.zeros((3, 3))
        meta.sgd(w, w * 1.0, v, 0.5, 0.0, 0.0)
        third = x @ w
    assert len(casts) == 3
    assert w.dtype == v.dtype == F32
    assert_equal([second.cast(F32), third.cast(F32)], [first.cast(F32) * 2.0, first.cast(F32)], rtol=1e-2)


def test_casts_are_not_shared_between_gradient_modes():
    w, x = array(3, 3, grad=True), array(2, 3)
    with meta.amp.autocast(BF16):
        with meta.no_grad():
            assert not (x @ w).requires_grad
        y = x @ w
        assert y.requires_grad
        y.sum().backward()
        w.requires_grad = False
        assert not (x @ w).requires_grad
    assert w.grad is not None


def test_runs_several_training_steps_in_one_scope():
    w, v, x = array(3, 2, grad=True), meta.zeros((3, 2)), array(4, 3)
    losses = []
    with meta.amp.autocast(BF16):
        for _ in range(4):
            w.grad = None
            loss = (meta.tanh(x @ w) ** 2.0).mean()
            loss.backward()
            with meta.no_grad():
                meta.sgd(w, w.grad, v, 0.5, 0.0, 0.0)
            losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


def test_backward_runs_twice_through_one_parameter():
    w, x = array(3, 2, grad=True), array(4, 3)
    with meta.amp.autocast(BF16):
        (x @ w).sum().backward()
        (x @ w).sum().backward()
    twice = w.grad
    w.grad = None
    (x @ w).sum().backward()
    assert_equal(twice, w.grad * 2.0, rtol=2e-2)


def test_casts_do_not_keep_arrays_alive():
    x = array(2, 3)
    with meta.amp.autocast(BF16):
        w = array(3, 3)
        x @ w
        reference = weakref.ref(w)
        del w
        gc.collect()
        assert reference() is None
        for i in range(20):  # a new array at the address of a freed one gets its own cast
            w = array(3, 3, seed=i)
            assert_equal((x @ w).cast(F32), (x.cast(BF16) @ w.cast(BF16)).cast(F32))


def test_in_place_operators_update_their_arrays():
    w, dx, v = array(3, dtype=BF16), array(3, seed=1, dtype=BF16), meta.zeros((3,), BF16)
    before = w.numpy().astype(F32)
    with meta.amp.autocast(BF16):
        meta.sgd(w, dx, v, 0.5, 0.0, 0.0)
    assert np.abs(w.numpy().astype(F32) - before).max() > 0.1


def test_tracing_records_the_casts():
    x, w = array(2, 3), array(3, 4)

    def f(x, w):
        with meta.amp.autocast(BF16):
            return meta.softmax(x @ w)

    counts = op_counts(program(f, (2, 3), (3, 4)).main)
    assert counts == {"cast": 3, "matmul": 1, "softmax": 1}
    assert_equal(run(program(f, (2, 3), (3, 4)), x, w)[0], f(x, w))
