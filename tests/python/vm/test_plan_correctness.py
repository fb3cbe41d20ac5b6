"""Programs whose tensors share memory keep every value that is read later: results, arguments and state equal
eager code, call after call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError
from meta.optim import TrainStep

Function = Callable[..., Any]
Scenario = Callable[[int], "tuple[Function, Sequence[Any]]"]
"""Width -> a function of two matrices, and the arrays that it writes besides."""


def matrix(width: int, seed: int) -> Any:
    return meta.array(np.random.default_rng(seed).standard_normal((width, width)))


def vector(width: int, seed: int) -> Any:
    return matrix(width, seed)[0].copy()


def outcomes(scenario: Scenario, width: int, wrap: Callable[[Function], Function]) -> list[np.ndarray[Any, Any]]:
    """Results, arguments and state after each of three calls."""
    function, state = scenario(width)
    call, out = wrap(function), list[np.ndarray[Any, Any]]()
    for number in range(3):
        arguments = [matrix(width, 10 * number + 100), matrix(width, 10 * number + 101)]
        results = call(*arguments)
        out += [np.array(x.detach().numpy()) for x in (*results, *arguments, *state)]
    return out


def assert_compiled_equals_eager(scenario: Scenario, width: int, **options: Any) -> None:
    expected = outcomes(scenario, width, lambda function: function)
    got = outcomes(scenario, width, lambda function: meta.vm.compile(meta.trace(function), **options))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(b).max()))


def assert_budgets_change_nothing(scenario: Scenario, width: int) -> None:
    """Compile for the least memory, for all, and between."""
    function, _ = scenario(width)
    arguments = matrix(width, 0), matrix(width, 1)
    total = meta.vm.compile(meta.trace(function)).memory(*arguments).total
    with pytest.raises(ArgumentError) as error:
        meta.vm.compile(meta.trace(function), memory_budget=1).program(*arguments)
    match = re.search(r"at least ([\d,]+)", str(error.value))
    assert match is not None
    least = int(match[1].replace(",", ""))
    for budget in sorted({least, (least + total) // 2, max(least, total - 1)}):
        assert_compiled_equals_eager(scenario, width, memory_budget=budget)


def spread(*arrays: Any) -> Any:
    """A sum that reads each array whole, and late."""
    return sum((x @ x.T).mean() * x for x in arrays)


# --- operators with several results that update their operands --------------------------------------------------------

UPDATES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "adam": lambda x, g, z: meta.adam(x, g, z, z + 1.0, None, 0.1, 0.9, 0.99, 1e-2, 0.0),
    "amsgrad": lambda x, g, z: meta.amsgrad(x, g, z, z + 1.0, z + 2.0, None, 0.1, 0.9, 0.99, 1e-2, 0.0),
    "sgd": lambda x, g, z: meta.sgd(x, g, z + 1.0, 0.1, 0.9),
    "rmsprop": lambda x, g, z: meta.rmsprop(x, g, z + 1.0, z, 0.1, 0.9, 1e-2, 0.0, 0.9),
    "rmsprop_centered": lambda x, g, z: meta.rmsprop_centered(x, g, z + 9.0, z + 1.0, z, 0.1, 0.9, 1e-2, 0.0, 0.9),
    "adagrad": lambda x, g, z: meta.adagrad(x, g, z + 1.0, 0.1, 1e-2),
}
each_update = pytest.mark.parametrize("name", UPDATES)
both_fusions = pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])


@each_update
@both_fusions
def test_updates_of_values_have_all_their_results(name: str, fuse: bool) -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        def function(x: Any, y: Any) -> Any:
            z = meta.zeros((width, width), dtype="float64")
            results = UPDATES[name](x * 1.0, x @ y, z)
            return [x @ r for r in results]

        return function, ()

    assert_compiled_equals_eager(scenario, 6, fuse=fuse)


@each_update
def test_updates_of_state_and_values_at_once(name: str) -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        w = matrix(width, 0)

        def function(x: Any, y: Any) -> Any:
            results = UPDATES[name](w, x @ y, meta.tanh(x) * 0.0)
            return spread(*results), y @ w

        return function, (w,)

    assert_compiled_equals_eager(scenario, 8)


def test_adam_of_values_by_hand() -> None:
    def function(x: Any) -> Any:
        z = x * 0.0
        a, b, c = meta.adam(x * 1.0, x @ x, z, z + 1.0, None, 0.1, 0.9, 0.99, 1e-8, 0.0)
        return a @ x, b @ x, c @ x

    x = np.random.default_rng(0).standard_normal((8, 8))
    m, v = 0.1 * (x @ x), 0.99 + 0.01 * (x @ x) ** 2
    expected = [part @ x for part in (x - 0.1 * m / (np.sqrt(v) + 1e-8), m, v)]
    for got, part in zip(meta.vm.compile(meta.trace(function))(meta.array(x)), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), part, rtol=1e-9, atol=1e-9)


# --- updates that are computed in every call and kept in some --------------------------------------------------------

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    "adam": ("Adam", {"eps": 1e-3}),
    "amsgrad": ("Adam", {"eps": 1e-3, "amsgrad": True}),
    "adamw": ("AdamW", {"eps": 1e-3}),
    "centered": ("RMSprop", {"eps": 0.1, "centered": True}),
    "lamb": ("LAMB", {"eps": 1e-2}),
}
SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "accumulate2": lambda: {"accumulate": 2},
    "accumulate3": lambda: {"accumulate": 3},
    "scaler": lambda: {"scaler": meta.amp.GradScaler(8.0, interval=2)},
}


def training(name: str, setting: str, calls: int) -> Scenario:
    """Steps of a linear layer, some times in each call."""
    kind, options = OPTIMIZERS[name]

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        meta.random.seed(0)
        model = nn.Linear(width, 3).to(dtype="float64")
        optimizer = getattr(meta.optim, kind)(model, 0.05, **options)
        step = TrainStep(model, optimizer, lambda y, t: ((y - t[:, :3]) ** 2).mean(), **SETTINGS[setting]())
        return (lambda x, y: [step(x, y) for _ in range(calls)]), [x for _, x in step.named_state()]

    return scenario


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_steps_that_keep_some_updates(name: str, setting: str) -> None:
    assert_compiled_equals_eager(training(name, setting, 1), 4)


@pytest.mark.parametrize(("name", "setting"), [("sgd", "accumulate3"), ("adam", "accumulate2"), ("centered", "scaler")])
def test_wide_steps_that_keep_some_updates(name: str, setting: str) -> None:
    assert_compiled_equals_eager(training(name, setting, 2), 33)


# --- batch norm ------------------------------------------------------------------------------------------------------

STATISTICS: dict[str, Callable[[Any, Any, int], tuple[Any, Any]]] = {
    "constants": lambda x, y, n: (meta.zeros((n,), dtype="float64"), meta.ones((n,), dtype="float64")),
    "values": lambda x, y, n: (y[0] * 2.0, meta.square(y[0]) + 0.5),
    "of_a_batch_norm": lambda x, y, n: meta.batch_norm_train(
        y, meta.zeros((n,), dtype="float64"), meta.ones((n,), dtype="float64")
    )[1:3],
    "saved_by_a_batch_norm": lambda x, y, n: meta.batch_norm_train(
        y, meta.zeros((n,), dtype="float64"), meta.ones((n,), dtype="float64")
    )[3:5],
}


@both_fusions
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_batch_norm_of_statistics_made_in_the_program(statistics: str, bias: bool, fuse: bool) -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        w = vector(width, 0)

        def function(x: Any, y: Any) -> Any:
            mean, var = STATISTICS[statistics](x, y, width)
            h, *rest = meta.batch_norm_train(x, mean, var, w, y[0] + 1.0 if bias else None, 0.3)
            return [h @ y, *(x * statistic for statistic in rest)]

        return function, (w,)

    assert_compiled_equals_eager(scenario, 3, fuse=fuse)


@both_fusions
@pytest.mark.parametrize(
    "options", [{}, {"track_running_stats": False}, {"affine": False}, {"momentum": None}], ids=str
)
def test_a_batch_norm_applied_twice_trains(options: dict[str, Any], fuse: bool) -> None:
    class Twice(meta.Model):
        def build(self) -> None:
            self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6, **options)

        def forward(self, x: Any) -> Any:
            return self.norm(x) + self.norm(x * 2.0 + 1.0) + self.norm(self.first(x))

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        meta.random.seed(0)
        model = Twice().to(dtype="float64")
        step = TrainStep(model, meta.optim.SGD(model, 0.1), lambda y, t: ((y - t) ** 2).mean())
        return (lambda x, y: (step(x, y),)), [x for _, x in step.named_state()]

    assert_compiled_equals_eager(scenario, 6, fuse=fuse)


# --- tensors computed again ------------------------------------------------------------------------------------------


def kept_of_old_state(width: int) -> tuple[Function, Sequence[Any]]:
    w = matrix(width, 0)

    def function(x: Any, y: Any) -> Any:
        h = meta.tanh(w * x)
        w.update(w * 3.0)
        a = meta.cumsum(x @ y, axis=0) @ x
        d = meta.cumsum(a @ y, axis=1) @ a * 1e-3
        return ((h @ d) * w @ x,)

    return function, (w,)


def kept_of_old_argument(width: int) -> tuple[Function, Sequence[Any]]:
    def function(x: Any, y: Any) -> Any:
        h = meta.sigmoid(x + y)
        x *= 0.5
        a = meta.cumsum(x @ y, axis=0) @ y
        d = meta.cumsum(a @ y, axis=1) @ a * 1e-3
        return (h @ d * x @ y,)

    return function, ()


def update_read_late(width: int) -> tuple[Function, Sequence[Any]]:
    w, v = matrix(width, 0), matrix(width, 1)

    def function(x: Any, y: Any) -> Any:
        new, _ = meta.sgd(w, x, v, 0.1, 0.9)
        h = meta.tanh(new + 1.0)
        a = meta.cumsum(x @ y, axis=0) @ x
        d = meta.cumsum(a @ y, axis=1) @ a * 1e-3
        return (h @ d @ x,)

    return function, (w, v)


@pytest.mark.parametrize(
    "scenario", [kept_of_old_state, kept_of_old_argument, update_read_late], ids=lambda f: f.__name__
)
def test_budgets_of_memory_change_no_value(scenario: Scenario) -> None:
    assert_budgets_change_nothing(scenario, 8)


# --- branches and writes ---------------------------------------------------------------------------------------------


def branch_scenario(body: Callable[[Any, Any, Any, Any], Any]) -> Scenario:
    """A function of two arguments that also has a matrix of state and a predicate."""

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        w = matrix(width, 0)
        return (lambda x, y: body(w, x, y, x[0, 0] * x[0, 0] > 0.3)), (w,)

    return scenario


def copied_state(w: Any, x: Any, y: Any, p: Any) -> Any:
    h = meta.cond(p, lambda: w.copy(), lambda: x * 2.0)
    w += x
    return (h @ x,)


def state_times_one(w: Any, x: Any, y: Any, p: Any) -> Any:
    h = meta.cond(p, lambda: w * 1.0, lambda: x * 2.0)
    w *= 3.0
    return h @ x, h


def copied_argument(w: Any, x: Any, y: Any, p: Any) -> Any:
    h = meta.cond(p, lambda: x.copy(), lambda: y.copy())
    x += w
    y *= 2.0
    return (h @ w,)


def two_results(w: Any, x: Any, y: Any, p: Any) -> Any:
    a, b = meta.cond(p, lambda: (w.copy(), w.copy()), lambda: (x * 2.0, y.copy()))
    w -= a * 0.5
    x *= 0.0
    return a @ b, b


def value_overwritten(w: Any, x: Any, y: Any, p: Any) -> Any:
    v = x * 1.0
    h = meta.cond(p, lambda: v.copy(), lambda: y * 2.0)
    v += w
    return h @ x, v


def written_into_state(w: Any, x: Any, y: Any, p: Any) -> Any:
    w[...] = meta.cond(p, lambda: w * 0.5, lambda: x * 2.0)
    return (w @ x,)


def old_state_into_state(w: Any, x: Any, y: Any, p: Any) -> Any:
    w[...] = meta.cond(p, lambda: w, lambda: x)
    return (w @ y,)


def added_to_argument(w: Any, x: Any, y: Any, p: Any) -> Any:
    x += meta.cond(p, lambda: w, lambda: y)
    return (x @ y,)


def branch_between_writes(w: Any, x: Any, y: Any, p: Any) -> Any:
    w += x
    a = meta.cond(p, lambda: w.copy(), lambda: y.copy())
    w *= 0.5
    b = meta.cond(p, lambda: y * 1.0, lambda: w * 1.0)
    w += 1.0
    return a @ b, a


BRANCHES = [
    copied_state, state_times_one, copied_argument, two_results, value_overwritten, written_into_state,
    old_state_into_state, added_to_argument, branch_between_writes,
]  # fmt: skip


@both_fusions
@pytest.mark.parametrize("body", BRANCHES, ids=lambda f: f.__name__)
def test_branches_beside_writes(body: Any, fuse: bool) -> None:
    assert_compiled_equals_eager(branch_scenario(body), 6, fuse=fuse)


@both_fusions
def test_gradients_through_branches_update_state(fuse: bool) -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        w = matrix(width, 0)
        w.requires_grad = True

        def function(x: Any, y: Any) -> Any:
            h = meta.cond(x[0, 0] > 0.0, lambda: meta.tanh(x @ w), lambda: x @ w * 0.5)
            loss = (h * y).mean()
            (g,) = meta.autograd.grad([loss], [w])
            with meta.no_grad():
                w.update(w - g)
            return g, loss.detach()

        return function, (w,)

    assert_compiled_equals_eager(scenario, 6, fuse=fuse)


MODELS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "values": lambda m, x, h: m.last(meta.cond(x.sum() > 0.0, lambda: meta.tanh(h), lambda: h * 0.5)),
    "layers": lambda m, x, h: meta.cond(x.sum() > 0.0, lambda: m.last(h), lambda: meta.tanh(m.last(x))),
    "parameters": lambda m, x, h: m.last(meta.cond(x.sum() > 0.0, lambda: x @ m.first.w, lambda: h)),
}


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("name", MODELS)
def test_models_with_branches_train(name: str, optimizer: str) -> None:
    class Branch(meta.Model):
        def build(self) -> None:
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return MODELS[name](self, x, self.first(x))

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        meta.random.seed(0)
        model = Branch().to(dtype="float64")
        step = TrainStep(model, getattr(meta.optim, optimizer)(model, 0.05), lambda y, t: ((y - t) ** 2).mean())
        return (lambda x, y: (step(x, y),)), [x for _, x in step.named_state()]

    assert_compiled_equals_eager(scenario, 6)
