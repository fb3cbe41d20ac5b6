"""Schedules: rates equal to torch's, eagerly and in programs that are compiled once; chains, errors, saved state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import optim
from meta.errors import ArgumentError, NotSupportedError, TraceError
from tests.python.optim.training import Network, assert_equal_weights, batches, run_steps, torch_trajectory

STEPS = 100
LR = torch.optim.lr_scheduler


def warm_up_then_cosine(kinds: Any, optimizer: Any) -> Any:
    first = kinds.LinearLR(optimizer, 0.1, 1.0, 6)
    return kinds.SequentialLR(optimizer, [first, kinds.CosineAnnealingLR(optimizer, STEPS - 6)], [6])


def halves_in_a_warm_up(kinds: Any, optimizer: Any) -> Any:
    parts = [kinds.LinearLR(optimizer, 0.5, 1.0, 8), kinds.ExponentialLR(optimizer, 0.9), kinds.StepLR(optimizer, 5)]
    return kinds.ChainedScheduler(parts)


CASES: dict[str, Any] = {
    "step": lambda kinds, o: kinds.StepLR(o, 5, 0.3),
    "multi-step": lambda kinds, o: kinds.MultiStepLR(o, [3, 4, 11], 0.7),
    "exponential": lambda kinds, o: kinds.ExponentialLR(o, 0.9),
    "cosine": lambda kinds, o: kinds.CosineAnnealingLR(o, 10, 0.001),
    "restarts": lambda kinds, o: kinds.CosineAnnealingWarmRestarts(o, 6, eta_min=0.001),
    "growing restarts": lambda kinds, o: kinds.CosineAnnealingWarmRestarts(o, T_0=2, T_mult=3),
    "linear": lambda kinds, o: kinds.LinearLR(o, 0.1, 0.8, 7),
    "lambda": lambda kinds, o: kinds.LambdaLR(o, lambda count: 0.95**count / (1 + count)),
    "sequential": warm_up_then_cosine,
    "chained": halves_in_a_warm_up,
    "one-cycle": lambda kinds, o: kinds.OneCycleLR(o, 0.3, STEPS),
    "one-cycle-linear": lambda kinds, o: (
        kinds.OneCycleLR(o, 0.3, STEPS, 0.4, "linear")
        if kinds is optim
        else kinds.OneCycleLR(o, 0.3, STEPS, pct_start=0.4, anneal_strategy="linear")
    ),
}


def optimizers() -> tuple[Any, Any]:
    """Two optimizers with two groups each."""
    arrays = [np.ones(2), np.ones(3)]
    theirs = [{"params": [torch.tensor(x, requires_grad=True)]} for x in arrays]
    ours = [{"params": meta.array(x, requires_grad=True)} for x in arrays]
    return (optim.SGD([ours[0], ours[1] | {"lr": 0.5}], 0.1, 0.9),
            torch.optim.SGD([theirs[0], theirs[1] | {"lr": 0.5}], 0.1, 0.9))  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's schedulers warn when no optimizer stepped
@pytest.mark.parametrize("name", [*CASES, "one-cycle-phases"])
def test_rates_equal_torch(name: str) -> None:
    ours, theirs = optimizers()
    if name == "one-cycle-phases":
        schedule: Any = optim.OneCycleLR(ours, [0.3, 0.7], 20, 0.35, three_phase=True, div_factor=4.0)
        scheduler: Any = LR.OneCycleLR(theirs, [0.3, 0.7], 20, pct_start=0.35, three_phase=True, div_factor=4.0)
    else:
        schedule, scheduler = CASES[name](optim, ours), CASES[name](LR, theirs)
    for _ in range(19):
        for group, reference in zip(ours.param_groups, theirs.param_groups, strict=True):
            assert group["lr"] == pytest.approx(reference["lr"], rel=1e-12, abs=1e-15)
            assert group["momentum"] == pytest.approx(reference["momentum"], rel=1e-12)
        schedule.step()
        scheduler.step()
    assert schedule.count == 19


@pytest.mark.parametrize("name", CASES)
def test_programs_schedule_as_eager_steps(name: str) -> None:
    """Each schedule traced by itself: the rates of a program are those of eager calls."""
    ours, _ = optimizers()
    eager, _ = optimizers()
    traced = CASES[name](optim, ours)
    expected = CASES[name](optim, eager)

    def step() -> None:
        traced.step()

    run = meta.vm.compile(meta.trace(step))
    for _ in range(STEPS + 2):
        run()
        expected.step()
        for group, reference in zip(ours.param_groups, eager.param_groups, strict=True):
            assert group["lr"] == pytest.approx(reference["lr"], rel=1e-12, abs=1e-15)
            assert group["momentum"] == pytest.approx(reference["momentum"], rel=1e-12)
    assert len(run._programs) == 1
    assert traced.count == STEPS + 2


@pytest.mark.parametrize("how", ["eager", "around the program", "in the program"])
def test_training_with_a_schedule_equals_torch(how: str) -> None:
    expected = torch_trajectory(
        lambda model: torch.optim.AdamW(model.parameters(), 0.05),
        STEPS,
        schedule=lambda optimizer: warm_up_then_cosine(LR, optimizer),
    )
    model = Network()
    optimizer = optim.AdamW(model, 0.05)
    schedule = warm_up_then_cosine(optim, optimizer)
    inside = how != "around the program"
    step: Any = optim.TrainStep(model, optimizer, meta.cross_entropy, schedule=schedule if inside else None)
    run = step if how == "eager" else meta.vm.compile(step)
    batch = [meta.array(x) for x in batches(1)[0]]
    program = None if how == "eager" else run.program(*batch)

    def one(*args: Any) -> None:
        run(*args)
        if not inside:
            schedule.step()

    run_steps(one, STEPS)
    assert_equal_weights(model, expected, rtol=1e-9)
    assert program is None or run.program(*batch) is program


def test_one_cycle_moves_beta1_of_adam() -> None:
    x = meta.array(np.ones(2), requires_grad=True)
    optimizer = optim.Adam([x])
    schedule = optim.OneCycleLR(optimizer, 0.1, 10)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.999)
    for _ in range(2):
        schedule.step()
    assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.85), 0.999)
    with pytest.raises(ArgumentError, match=r"\[OneCycleLR\] Adagrad has neither momentum nor beta1; expected an opt"):
        optim.OneCycleLR(optim.Adagrad([x]), 0.1, 10)
    optim.OneCycleLR(optim.Adagrad([x]), 0.1, 10, cycle_momentum=False)


def test_schedules_save_and_restore() -> None:
    ours, _ = optimizers()
    schedule = warm_up_then_cosine(optim, ours)
    for _ in range(9):
        schedule.step()
    state = {name: x.numpy().copy() for name, x in schedule.state_dict().items()}
    assert {n: x.item() for n, x in state.items()} == {"count": 9, "base": 0.1, "group1.base": 0.5}
    rates = [group["lr"] for group in ours.param_groups]
    other, _ = optimizers()
    other.load_state_dict(ours.state_dict())
    again = warm_up_then_cosine(optim, other)
    again.load_state_dict(state)
    assert [group["lr"] for group in other.param_groups] == rates
    for each in (schedule, again):
        each.step()
    assert [group["lr"] for group in other.param_groups] == [group["lr"] for group in ours.param_groups]
    with pytest.raises(
        ArgumentError,
        match=r"\[load_state_dict\] missing: \['base', 'group1.base'\]; expected the names of the schedule",
    ):
        again.load_state_dict({"count": 3})


def test_a_rate_that_is_set_is_the_base_of_the_next_schedule() -> None:
    ours, _ = optimizers()
    optim.LinearLR(ours, 0.1)
    optim.ExponentialLR(ours, 0.5).step()
    assert [group["lr"] for group in ours.param_groups] == [0.05, 0.25]
    ours.learning_rate = 2.0
    optim.ExponentialLR(ours, 0.5).step()
    assert ours.learning_rate == 1.0


def test_lambdas_of_groups_and_of_values() -> None:
    ours, _ = optimizers()
    schedule = optim.LambdaLR(ours, [lambda count: 1.0 if count < 1 else 0.5, lambda count: np.float32(2.0)])
    schedule.step()
    assert [group["lr"] for group in ours.param_groups] == [0.05, 1.0]
    with pytest.raises(
        ArgumentError, match=r"\[optimizer\] learning_rate is -0.1; expected a finite number, 0 or more"
    ):
        optim.LambdaLR(ours, lambda count: -1.0)


def warm_up_in_python(count: int) -> float:
    if count < 5:
        return (count + 1) / 5
    return {40: 0.25}.get(count, 0.5 * (1 + math.cos(math.pi * (count - 5) / STEPS)))


class HalfWithPython(optim.Schedule):
    """A schedule of a user, whose rate needs the number."""

    def rate(self, count: Any, base: Any) -> Any:
        return base * 0.5 if count >= 7 else base


HOST_CASES: dict[str, Any] = {
    "lambda": lambda kinds, o: kinds.LambdaLR(o, lr_lambda=warm_up_in_python),
    "of each group": lambda kinds, o: kinds.LambdaLR(o, [warm_up_in_python, lambda count: min(1.0, count / 9)]),
    "in a sequence": lambda kinds, o: kinds.SequentialLR(
        o, [kinds.LambdaLR(o, warm_up_in_python), kinds.StepLR(o, 3, 0.5)], milestones=[11]
    ),
    "in a chain": lambda kinds, o: kinds.ChainedScheduler([kinds.LambdaLR(o, warm_up_in_python)]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's schedulers warn when no optimizer stepped
@pytest.mark.parametrize("name", HOST_CASES)
def test_rates_that_python_computes_are_inputs_of_one_program(name: str) -> None:
    ours, theirs = optimizers()
    schedule, scheduler = HOST_CASES[name](optim, ours), HOST_CASES[name](LR, theirs)

    def step() -> None:
        schedule.step()

    run = meta.vm.compile(meta.trace(step))
    for i in range(60):
        if i == 20:  # eager steps in between
            schedule.step()
        else:
            run()
        scheduler.step()
        assert schedule.get_last_lr() == pytest.approx(scheduler.get_last_lr(), rel=1e-12)
    assert len(run._programs) == 1
    assert schedule.count == 60
    state = {n: x.numpy().copy() for n, x in schedule.state_dict().items()}
    for _ in range(5):
        run()
    schedule.load_state_dict(state)
    run()
    scheduler.step()
    assert schedule.get_last_lr() == pytest.approx(scheduler.get_last_lr(), rel=1e-12)


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"scaler": 8.0}], ids=str)
@pytest.mark.parametrize("make", [HalfWithPython, lambda o: optim.LambdaLR(o, warm_up_in_python)])
def test_training_with_rates_that_python_computes(settings: Any, make: Any) -> None:
    models = [Network(), Network()]
    counts = set[int]()
    for model, compiled in zip(models, (False, True), strict=True):
        optimizer = optim.AdamW(model, lr=0.05)
        options = {**settings, "scaler": meta.amp.GradScaler(settings["scaler"])} if "scaler" in settings else settings
        schedule = make(optimizer)
        step: Any = optim.TrainStep(model, optimizer, meta.cross_entropy, schedule=schedule, **options)
        run_steps(meta.vm.compile(step) if compiled else step, 20)
        counts.add(schedule.count)
    assert counts == {10 if "accumulate" in settings else 20}
    assert_equal_weights(models[1], [x.detach().numpy() for x in models[0].parameters()], rtol=1e-9)


def test_rates_that_python_computes_are_refused_where_they_are_not_known() -> None:
    ours, _ = optimizers()
    schedule = optim.LambdaLR(ours, warm_up_in_python)

    def twice() -> None:
        schedule.step()
        schedule.step()

    with pytest.raises(TraceError, match=r"\[LambdaLR\] a schedule whose rate Python computes is stepped twice"):
        meta.trace(twice).ir()
    run = meta.vm.compile(meta.trace(schedule.step))
    run()
    with pytest.raises(
        NotSupportedError, match=r"\[save\] calls of .*step evaluate Python functions, such as a Lambda"
    ):
        run.save("program.meta")


def test_schedules_take_torchs_names() -> None:
    ours, theirs = optimizers()
    for kinds, optimizer in ((optim, ours), (LR, theirs)):
        kinds.LinearLR(optimizer, start_factor=0.1, end_factor=0.9, total_iters=3)
        kinds.CosineAnnealingLR(optimizer, T_max=10, eta_min=0.001)
        kinds.OneCycleLR(optimizer, max_lr=0.3, total_steps=9, pct_start=0.4, anneal_strategy="linear")
    assert ours.learning_rate == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12)
    with pytest.raises(
        ArgumentError, match=r"\[LinearLR\] argument 'start' comes twice; expected one of start, start_f"
    ):
        optim.LinearLR(ours, start=0.1, start_factor=0.1)
    with pytest.raises(ArgumentError, match=r"\[StepLR\] unknown argument 'last_epoch'; .*load_state_dict continues"):
        optim.StepLR(ours, 3, last_epoch=4)


METRICS = [5.0, 4.0, 4.1, 4.05, 3.9999, 3.0, 3.2, 3.1, 3.3, 3.4, 3.5, 3.2, 3.1, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5]


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1}, {"patience": 0, "factor": 0.5, "cooldown": 2}, {"patience": 1, "min_lr": 0.04},
        {"mode": "max", "patience": 2, "threshold": 0.1}, {"threshold_mode": "abs", "threshold": 0.5, "patience": 1},
        {"mode": "max", "threshold_mode": "abs", "threshold": 0.01, "patience": 1}, {"patience": 0, "eps": 0.005},
    ],
    ids=str,
)  # fmt: skip
def test_reduction_on_a_plateau_equals_torch(options: Any) -> None:
    """With numbers, with tensors, and in one program."""
    runs: list[Any] = []
    for compiled in (False, True):
        ours, _ = optimizers()
        schedule = optim.ReduceLROnPlateau(ours, **options)
        runs.append((schedule, meta.vm.compile(meta.trace(schedule.step)) if compiled else schedule.step))
    _, theirs = optimizers()
    scheduler = LR.ReduceLROnPlateau(theirs, **options)
    for i, metric in enumerate(METRICS):
        scheduler.step(metric)
        for schedule, run in runs:
            run(meta.array(metric, "float64") if i % 2 or run != schedule.step else metric)
            assert schedule.get_last_lr() == pytest.approx(scheduler.get_last_lr(), rel=1e-12)
        if i == 9:  # from a saved state
            ours, _ = optimizers()
            again = optim.ReduceLROnPlateau(ours, **options)
            ours.load_state_dict(runs[0][0].optimizer.state_dict())
            again.load_state_dict(runs[0][0].state_dict())
            runs[0] = again, again.step


def test_a_plateau_needs_a_metric() -> None:
    ours, _ = optimizers()
    schedule = optim.ReduceLROnPlateau(ours)
    with pytest.raises(
        ArgumentError, match=r"\[ReduceLROnPlateau\] step\(\) without a metric; expected step\(metric\)"
    ):
        schedule.step()
    with pytest.raises(ArgumentError, match=r"\[TrainStep\] the schedule is ReduceLROnPlateau, which takes a metric"):
        optim.TrainStep(abs, ours, schedule=schedule)
    with pytest.raises(ArgumentError, match=r"\[ReduceLROnPlateau\] mode is 'least'"):
        optim.ReduceLROnPlateau(ours, "least")  # type: ignore[arg-type]


SECOND = optim.StepLR(optimizers()[0], 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda o: optim.StepLR(o, 0), r"\[StepLR\] step_size is 0; expected an int, 1 or more"),
        (lambda o: optim.StepLR(o, 3, 0.0), r"\[StepLR\] gamma is 0.0; expected a finite number above 0"),
        (lambda o: optim.StepLR(o.parameters, 3), r"\[StepLR\] optimizer is \[.*; expected an Optimizer"),
        (lambda o: optim.MultiStepLR(o, [5, 3]), r"\[MultiStepLR\] milestones is \[5, 3\]; expected a list of increas"),
        (lambda o: optim.MultiStepLR(o, 5), r"\[MultiStepLR\] milestones is 5; expected a sequence of ints"),
        (lambda o: optim.ExponentialLR(o, math.nan), r"\[ExponentialLR\] gamma is nan; expected a finite number"),
        (lambda o: optim.CosineAnnealingLR(o, 2.5), r"\[CosineAnnealingLR\] steps is 2.5; expected an int"),
        (lambda o: optim.LinearLR(o, -1), r"\[LinearLR\] start is -1; expected a finite number, 0 or more"),
        (lambda o: optim.LambdaLR(o, [math.sqrt]), r"\[LambdaLR\] 1 functions for 2 groups; expected a function, or a"),
        (lambda o: optim.OneCycleLR(o, 0.1, 0), r"\[OneCycleLR\] total_steps is 0; expected an int, 1 or more"),
        (lambda o: optim.OneCycleLR(o, 0.1, 5, 1.5), r"\[OneCycleLR\] rising is 1.5; expected a number from 0 to 1"),
        (lambda o: optim.OneCycleLR(o, [0.1], 5), r"\[OneCycleLR\] 1 values of highest for 2 groups; expected one for"),
        (lambda o: optim.OneCycleLR(o, 0.1, 5, anneal="sin"), r"\[OneCycleLR\] anneal is 'sin'; expected \"cos\" or"),
        (lambda o: optim.SequentialLR(o, [], []), r"\[SequentialLR\] the schedules are \[\]; expected a list of sched"),
        (lambda o: optim.SequentialLR(o, [optim.StepLR(o, 3)], [2]), r"1 schedules and 1 milestones; expected a miles"),
        (lambda o: optim.ChainedScheduler([SECOND, optim.StepLR(o, 3)]), r"schedules of several optimizers; expected "),
        (
            lambda o: optim.ChainedScheduler(SECOND),
            r"\[ChainedScheduler\] schedules is of class StepLR; .*seq",
        ),
        (lambda o: optim.TrainStep(abs, o, schedule=SECOND), r"\[TrainStep\] the schedule is of another optimizer"),
    ],
)
def test_rejects_invalid_schedules(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make(optimizers()[0])
