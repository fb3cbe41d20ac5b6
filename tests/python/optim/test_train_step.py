"""Training steps: accumulated gradients, master weights, loss scaling, and their state."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import nn, optim
from meta.errors import ArgumentError
from tests.python.optim.training import (
    Network,
    TorchNetwork,
    assert_equal_weights,
    batches,
    run_steps,
    torch_trajectory,
)

STEPS = 100


def runner(step: Any, compiled: bool) -> Any:
    return meta.vm.compile(step) if compiled else step


@pytest.mark.parametrize("compiled", [False, True])
def test_accumulated_gradients_train_as_in_torch(compiled: bool) -> None:
    """With a schedule and clipping, which run at the updates only."""
    theirs = TorchNetwork()
    reference = torch.optim.Adam(theirs.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(reference, 0.8)
    for i, (x, target) in enumerate(batches(STEPS)):
        (torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)) / 3).backward()
        if i % 3 == 2:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.2)
            reference.step()
            reference.zero_grad()
            scheduler.step()
    ours = Network()
    optimizer = optim.Adam(ours, 0.05)
    schedule = optim.ExponentialLR(optimizer, 0.8)
    step = optim.TrainStep(ours, optimizer, meta.cross_entropy, accumulate=3, clip_norm=0.2, schedule=schedule)
    run = runner(step, compiled)
    batch = [meta.array(x) for x in batches(1)[0]]
    program = run.program(*batch) if compiled else None
    run_steps(run, STEPS)
    assert_equal_weights(ours, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)
    assert not compiled or run.program(*batch) is program
    assert schedule.count == STEPS // 3
    assert optimizer.state_dict()["first.w.step"].item() == STEPS // 3
    assert ours.first.w.grad is None


def test_accumulated_batches_equal_one_batch() -> None:
    (x, target), (x2, target2) = batches(2)
    whole, parts = Network(), Network()
    optim.TrainStep(whole, optim.SGD(whole, 0.5), meta.cross_entropy)(
        meta.array(np.concatenate([x, x2])), meta.array(np.concatenate([target, target2]))
    )
    step = optim.TrainStep(parts, optim.SGD(parts, 0.5), meta.cross_entropy, accumulate=2)
    for each in ((x, target), (x2, target2)):
        step(*map(meta.array, each))
    for ours, expected in zip(parts.parameters(), whole.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), expected.detach().numpy(), rtol=1e-12)


def test_gradients_accumulate_in_grad() -> None:
    """Without TrainStep: `backward` adds up, and the optimizer steps when it is called."""
    model, theirs = Network(), TorchNetwork()
    optimizer, reference = optim.AdamW(model, 0.05), torch.optim.AdamW(theirs.parameters(), 0.05)
    for i, (x, target) in enumerate(batches(8)):
        (meta.cross_entropy(model(meta.array(x)), meta.array(target)) / 2).backward()
        (torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)) / 2).backward()
        if i % 2:
            for each in (optimizer, reference):
                each.step()
                each.zero_grad()
    assert_equal_weights(model, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)


MASTERED = {
    "sgd": (optim.SGD, {"momentum": 0.9}),
    "adamw": (optim.AdamW, {}),
    "amsgrad": (optim.Adam, {"amsgrad": True}),
    "adagrad": (optim.Adagrad, {}),
    "rmsprop": (optim.RMSprop, {"centered": True}),
    "lamb": (optim.LAMB, {}),
    "lans": (optim.LANS, {}),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MASTERED)
def test_master_weights_equal_float32_weights(name: str, dtype: str) -> None:
    """With the gradients of a float32 optimizer, an optimizer of halves reaches its weights, rounded."""
    kind, options = MASTERED[name]
    exact = meta.array(np.linspace(-1, 1, 8), dtype="float32", requires_grad=True)
    start = exact.detach().cast(dtype).cast("float32")
    exact.detach().update(start)
    half = meta.array(start.numpy(), dtype=dtype, requires_grad=True)
    pair = kind([exact], 1e-4, **options), kind([half], 1e-4, master_weights=True, **options)
    for i in range(STEPS):
        gradient = meta.array(np.cos(np.arange(8) + i), dtype=dtype)
        exact.grad, half.grad = gradient.cast("float32"), gradient
        for optimizer in pair:
            optimizer.step()
    np.testing.assert_array_equal(half.detach().cast("float32").numpy(), exact.detach().cast(dtype).cast("float32"))
    state = pair[1].state_dict()
    assert {x.dtype for n, x in state.items() if n.startswith("parameter0.") and not n.endswith("step")} == {"float32"}
    np.testing.assert_array_equal(state["parameter0.master"].numpy(), exact.detach().numpy())


@pytest.mark.parametrize("compiled", [False, True])
def test_small_updates_reach_bfloat16_weights_through_masters(compiled: bool) -> None:
    """bfloat16 has 8 bits: steps of 1e-4 of a weight of 1 vanish without masters."""
    moved = {}
    for masters in (False, True):
        model = nn.Linear(2, 2).to(dtype="bfloat16")
        model.load_state_dict({"w": meta.ones((2, 2), "bfloat16"), "b": meta.zeros((2,), "bfloat16")})
        optimizer = optim.SGD([("w", model.w)], 1e-4, master_weights=masters)
        step = optim.TrainStep(model, optimizer, lambda y: y.cast("float32").sum())
        run = runner(step, compiled)
        for _ in range(100):
            run(meta.ones((1, 2), "bfloat16"))
        moved[masters] = 1 - model.w.detach().cast("float32").numpy()
    assert not moved[False].any()
    np.testing.assert_allclose(moved[True], 0.01, atol=2**-8)


def test_master_weights_follow_a_model_that_moves() -> None:
    model = nn.Linear(2, 2)
    optimizer = optim.Adam(model, master_weights=True)
    step = optim.TrainStep(model, optimizer, lambda y: y.cast("float32").sum())
    step(meta.ones((1, 2)))
    assert "w.master" not in optimizer.state_dict()
    model.to(dtype="bfloat16")
    step(meta.ones((1, 2), "bfloat16"))
    assert {optimizer.state_dict()[f"w.{slot}"].dtype for slot in ("master", "m", "v")} == {"float32"}
    model.to(dtype="float64")
    step(meta.ones((1, 2), "float64"))
    assert "w.master" not in optimizer.state_dict()
    assert optimizer.state_dict()["w.m"].dtype == "float64"


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_with_a_scaler_skip_overflows(compiled: bool) -> None:
    model = Network()
    optimizer, scaler = optim.Adam(model, 0.05), meta.amp.GradScaler(scale=8.0, interval=100)
    schedule = optim.StepLR(optimizer, 100)
    step = optim.TrainStep(
        model, optimizer, meta.cross_entropy, accumulate=2, clip_norm=0.2, scaler=scaler, schedule=schedule
    )
    run = runner(step, compiled)
    for i, (x, target) in enumerate(batches(8)):
        run(meta.array(x * np.inf if i == 2 else x), meta.array(target))
    remaining = [batch for i, batch in enumerate(batches(8)) if i not in (2, 3)]
    expected = Network()
    plain = optim.TrainStep(expected, optim.Adam(expected, 0.05), meta.cross_entropy, accumulate=2, clip_norm=0.2)
    for x, target in remaining:
        plain(meta.array(x), meta.array(target))
    assert_equal_weights(model, [x.detach().numpy() for x in expected.parameters()], rtol=1e-6)
    assert scaler.factor == 4.0
    assert optimizer.state_dict()["first.w.step"].item() == 3


def full_step(compiled: bool) -> tuple[Network, optim.TrainStep, Any]:
    model = Network()
    optimizer = optim.AdamW(model, 0.05)
    schedule = optim.OneCycleLR(optimizer, 0.1, 10)
    scaler = meta.amp.GradScaler(scale=4.0, interval=3)
    step = optim.TrainStep(model, optimizer, meta.cross_entropy, accumulate=2, schedule=schedule, scaler=scaler)
    return model, step, runner(step, compiled)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_resumes_bit_by_bit(compiled: bool) -> None:
    """Also between two updates."""
    data = [(meta.array(x), meta.array(target)) for x, target in batches(12)]
    _, step, run = full_step(compiled)
    for batch in data[:7]:
        run(*batch)
    saved = {name: x.detach().numpy().copy() for name, x in step.state_dict().items()}
    expected = [run(*batch).item() for batch in data[7:]]
    again, other, run = full_step(compiled)
    other.load_state_dict(saved)
    assert [run(*batch).item() for batch in data[7:]] == expected
    for name, x in other.state_dict().items():
        np.testing.assert_array_equal(x.detach().numpy(), step.state_dict()[name].detach().numpy(), err_msg=name)
    assert {"model.first.w", "optimizer.first.w.m", "schedule.count", "scaler.factor", "step.calls"} <= saved.keys()
    before = again.first.w.detach().numpy().copy()
    with pytest.raises(
        ArgumentError, match=r"\[load_state_dict\] missing: \['schedule.count'\]; expected the names of the training st"
    ):
        other.load_state_dict({n: x for n, x in saved.items() if n != "schedule.count"})
    with pytest.raises(ArgumentError, match=r"'schedule.count' is .*float32.*int64.*, as in the training step"):
        other.load_state_dict(saved | {"schedule.count": np.ones(3, "float32")})
    np.testing.assert_array_equal(again.first.w.detach().numpy(), before)


def test_steps_are_saved_to_files(tmp_path: Path) -> None:
    """With the parameters of a step whose model is a function."""
    data = [(meta.array(x), meta.array(target)) for x, target in batches(4)]

    def step_and_arguments() -> tuple[Any, Any]:
        w = meta.array(np.ones((2, 3)), requires_grad=True)
        optimizer = optim.Adam([("w", w)], 0.1)
        schedule = optim.StepLR(optimizer, 1)
        return w, optim.TrainStep(lambda x: meta.dense(x, w), optimizer, meta.cross_entropy, schedule=schedule)

    w, step = step_and_arguments()
    for batch in data[:2]:
        step(*batch)
    meta.save(tmp_path / "step.safetensors", step)
    expected = [step(*batch).item() for batch in data[2:]]
    again, other = step_and_arguments()
    meta.load(tmp_path / "step.safetensors", other)
    assert [other(*batch).item() for batch in data[2:]] == expected
    np.testing.assert_array_equal(again.detach().numpy(), w.detach().numpy())


class Signs(optim.Optimizer):
    """The sign of a running mean of the gradient (X. Chen et al., 2023)."""

    def slot_names(self, group: Any) -> tuple[str, ...]:
        return ("mean",)

    def update_group(self, group: Any, count: Any, updated: Any) -> None:
        rate, beta = (group.numbers[name].array for name in ("learning_rate", "beta"))
        for name, x, dx in updated:
            mean = self.slots["mean"][name]
            mean.update(beta * mean + (1 - beta) * dx)
            x.update(x - rate * meta.sign(mean))


def test_optimizers_of_users() -> None:
    models = Network(), Network()
    steps = [optim.TrainStep(m, Signs(m, 0.01, beta=0.9), meta.cross_entropy) for m in models]
    run = meta.vm.compile(steps[1])
    for i, (x, target) in enumerate(batches(6)):
        for each in steps:
            each.optimizer.param_groups[0]["beta"] = 0.5 if i > 3 else 0.9
        losses = [each(meta.array(x), meta.array(target)).item() for each in (steps[0], run)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert_equal_weights(models[1], [x.detach().numpy() for x in models[0].parameters()], rtol=1e-9)
    assert "first.w.mean" in steps[0].optimizer.state_dict()


def test_settings_of_a_step_reach_programs() -> None:
    model = Network()
    step = optim.TrainStep(model, optim.SGD(model, 1.0), meta.cross_entropy, clip_norm=1e-3)
    run = meta.vm.compile(step)
    x, target = map(meta.array, batches(1)[0])
    for bound in (1e-3, 1e-2):
        step.clip_norm = bound
        before = [p.detach().numpy().copy() for p in model.parameters()]
        run(x, target)
        moved = [p.detach().numpy() - b for p, b in zip(model.parameters(), before, strict=True)]
        assert np.sqrt(sum((m**2).sum() for m in moved)) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("value", [0, 1.5, True, None])
def test_rejects_invalid_accumulation(value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"\[TrainStep\] accumulate is {value}; expected an int"):
        optim.TrainStep(abs, optim.SGD(Network()), accumulate=value)


@pytest.mark.parametrize("compiled", [False, True])
def test_results_besides_the_loss(compiled: bool) -> None:
    model = Network()

    def loss(y: Any, target: Any) -> tuple[Any, ...]:
        return meta.cross_entropy(y, target), 3, {"largest": [y.max(), "name"]}

    step = optim.TrainStep(model, optim.SGD(model), loss)
    value, count, others = (meta.vm.compile(step) if compiled else step)(*map(meta.array, batches(1)[0]))
    assert (value.shape, count, others["largest"][1]) == ((), 3, "name")
    assert (value.requires_grad, others["largest"][0].requires_grad) == (False, False)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (lambda y: [y.sum()], "a list"),
        (lambda y: {"loss": y.sum()}, "a dict"),
        (lambda y: (3, y.sum()), r"a tuple of \['int', "),
        (lambda y: (), r"a tuple of \[\]"),
        (lambda y: None, "a NoneType"),
    ],
)
def test_results_without_a_loss_are_refused(result: Any, problem: str, compiled: bool) -> None:
    model = Network()
    step = optim.TrainStep(model, optim.SGD(model), lambda y, _: result(y))
    with pytest.raises(
        ArgumentError, match=rf"\[TrainStep\] 'loss' returns {problem}.*; expected the loss, or a tuple"
    ):
        (meta.vm.compile(step) if compiled else step)(*map(meta.array, batches(1)[0]))


def test_short_way_to_a_step() -> None:
    expected = torch_trajectory(lambda m: torch.optim.AdamW(m.parameters(), 0.05, weight_decay=0.1), 3)
    model = Network()
    step = optim.with_optimizer(optim.AdamW, 0.05, weight_decay=0.1)(model, meta.cross_entropy, accumulate=1)
    run_steps(step, 3)
    assert_equal_weights(model, expected, rtol=1e-9)


class Trainer:
    def __init__(self, net: Any) -> None:
        self.net = net

    def loss(self, x: Any, target: Any) -> Any:
        return meta.mse_loss(self.net(x), target)

    __call__ = loss


def _functions(net: Any) -> dict[str, Any]:
    """Losses of a model, which they reach in several ways."""

    def direct(x: Any, target: Any) -> Any:
        return meta.mse_loss(net(x), target)

    def through_another(x: Any, target: Any) -> Any:
        return direct(x, target) * 1.0

    def nested(x: Any, target: Any) -> Any:
        return (lambda: direct(x, target))()

    holder = {"nets": [net]}
    trainer = Trainer(net)
    return {
        "closure": direct,
        "function": through_another,
        "nested": nested,
        "traced": meta.trace(direct),
        "container": lambda x, target: meta.mse_loss(holder["nets"][0](x), target),
        "method": trainer.loss,
        "callable": trainer,
        "attribute": lambda x, target: trainer.loss(x, target),
        "partial": functools.partial(lambda model, x, target: meta.mse_loss(model(x), target), net),
        "default": lambda x, target, model=net: meta.mse_loss(model(x), target),
    }


@pytest.mark.parametrize("name", list(_functions(None)))
def test_steps_of_functions_save_running_statistics(name: str, tmp_path: Path) -> None:
    def make() -> tuple[Any, Any]:
        meta.random.seed(0)
        net = meta.nn.Sequential(meta.nn.Linear(3, 2), meta.nn.BatchNorm1d(2))
        return net, optim.TrainStep(_functions(net)[name], optim.SGD(net, 0.1))

    net, step = make()
    step(meta.random.normal((4, 3)), meta.zeros((4, 2)))
    meta.save(tmp_path / "step", step)
    again, other = make()
    meta.load(tmp_path / "step", other)
    assert {f"model.{name}" for name in net.state_dict()} <= set(step.state_dict())
    for key, x in net.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[key].detach().numpy(), x.detach().numpy(), key)
    assert again.state_dict()["layers.1.running_mean"].tolist() != [0.0, 0.0]


def test_steps_save_the_models_of_their_losses() -> None:
    norm, model = meta.nn.BatchNorm1d(2), meta.nn.Linear(3, 2)
    step = optim.TrainStep(model, optim.SGD(model, 0.1), lambda y, target: meta.mse_loss(norm(y), target))
    assert {"model.w", "model.norm.running_mean"} <= set(step.state_dict())
    other = meta.nn.BatchNorm1d(2)
    function = lambda x: (other(norm(model(x))) ** 2).sum()  # noqa: E731
    step = optim.TrainStep(function, optim.SGD(model, 0.1))
    assert {"model.w", "model.norm.running_mean", "model.other.running_mean"} <= set(step.state_dict())
