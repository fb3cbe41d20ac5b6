"""Parameter groups: hyperparameters of their own, errors, state, and parameters that are updated at different times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import nn, optim
from meta.errors import ArgumentError, TraceError
from tests.python.optim.training import (
    Network,
    TorchNetwork,
    assert_equal_weights,
    batches,
    run_steps,
    torch_trajectory,
)

STEPS = 100


def leaf(count: int = 2) -> meta.NDArray:
    return meta.array(np.ones(count), requires_grad=True)


def groups_of(model: Any, biases: list[Any], **options: Any) -> list[dict[str, Any]]:
    rest = [x for x in model.parameters() if all(x is not b for b in biases)]
    return [{"params": rest}, {"params": biases, "weight_decay": 0.0, "lr": 0.05, "betas": (0.5, 0.9), **options}]


@pytest.mark.parametrize("compiled", [False, True])
def test_groups_train_as_in_torch(compiled: bool) -> None:
    def make(model: TorchNetwork) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups_of(model, [model.first.bias, model.last.bias]), lr=0.02, weight_decay=0.1)

    model = Network()
    optimizer = optim.AdamW(groups_of(model, [model.first.b, model.last.b]), 0.02, weight_decay=0.1)
    step: Any = optim.TrainStep(model, optimizer, meta.cross_entropy)
    run_steps(meta.vm.compile(step) if compiled else step, STEPS)
    assert_equal_weights(model, torch_trajectory(make, STEPS), rtol=1e-9)


def test_added_groups_train_as_in_torch() -> None:
    def added(group: dict[str, Any]) -> dict[str, Any]:
        return group | {"lr": 0.1, "momentum": 0.5, "nesterov": True}

    theirs, ours = TorchNetwork(), Network()
    reference = torch.optim.SGD(theirs.first.parameters(), 0.2, 0.9)
    optimizer = optim.SGD(ours.first.named_parameters(), 0.2, 0.9)
    run = meta.vm.compile(optim.TrainStep(ours, optimizer, meta.cross_entropy))
    for i, (x, target) in enumerate(batches(STEPS)):
        if i == STEPS // 2:
            reference.add_param_group(added({"params": theirs.last.parameters()}))
            optimizer.add_param_group(added({"params": [(f"last.{n}", p) for n, p in ours.last.named_parameters()]}))
        reference.zero_grad()
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)).backward()
        reference.step()
        run(meta.array(x), meta.array(target))
    assert_equal_weights(ours, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)
    assert {"learning_rate", "group1.learning_rate", "last.w.velocity"} <= optimizer.state_dict().keys()


def test_hyperparameters_of_groups_are_read_and_set() -> None:
    model = Network()
    optimizer = optim.Adam(groups_of(model, [model.last.b], eps=1e-3), 0.02)
    first, second = optimizer.param_groups
    assert (first["lr"], second["learning_rate"], second["betas"], second["eps"]) == (0.02, 0.05, (0.5, 0.9), 1e-3)
    assert [x.shape for x in second["params"]] == [(2,)]
    assert "amsgrad" in second
    assert "momentum" not in second
    assert repr(second).startswith("ParamGroup(params=['parameter3'], learning_rate=0.05, beta1=0.5")
    second["betas"] = 0.1, 0.2
    second["lr"] = 0.5
    assert (second["beta2"], second["learning_rate"], first["beta2"]) == (0.2, 0.5, 0.999)
    with pytest.raises(ArgumentError, match=r"\[optimizer\] learning_rate is 0.02, 0.5 in the groups; expected one"):
        _ = optimizer.learning_rate
    optimizer.learning_rate = 0.25
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("compiled", [False, True])
def test_hyperparameters_of_groups_reach_programs(compiled: bool) -> None:
    def change(optimizer: Any, i: int) -> None:
        if i == 5:
            optimizer.param_groups[1]["lr"] = 0.3
            optimizer.param_groups[0]["betas"] = (0.7, 0.8)
            optimizer.param_groups[0]["eps"] = 1e-2
            optimizer.param_groups[0]["weight_decay"] = 0.2

    theirs, ours = TorchNetwork(), Network()
    reference = torch.optim.Adam(groups_of(theirs, [theirs.last.bias]), 0.02)
    optimizer = optim.Adam(groups_of(ours, [ours.last.b]), 0.02)
    step: Any = optim.TrainStep(ours, optimizer, meta.cross_entropy)
    run = meta.vm.compile(step) if compiled else step
    programs = set()
    for i, (x, target) in enumerate(batches(12)):
        for each in (reference, optimizer):
            change(each, i)
        reference.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)).backward()
        reference.step()
        run(meta.array(x), meta.array(target))
        programs.add(id(run.program(meta.array(x), meta.array(target))) if compiled else 0)
    assert_equal_weights(ours, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)
    assert len(programs) == 1


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([{"params": leaf(), "momentun": 0.9}], r"a group has no 'momentun'; expected params, learning_rate, momentum, "
                                                r"weight_decay, nesterov; did you mean 'momentum'\?"),
        ([{"params": [leaf()], "momentum": -1}], "momentum is -1; expected a finite number, 0 or more"),
        ([{"params": [leaf()], "nesterov": 1}], "nesterov is 1; expected True or False"),
        ([{"params": [leaf()], "lr": 0.1, "learning_rate": 0.1}], "a group has 'learning_rate' twice"),
        ([{"lr": 0.1}], r"a group has \['lr'\]; expected a dict with \"params\""),
        ([{"params": []}], "there are no parameters"),
        ([{"params": [leaf()]}, leaf()], "a NDArray is among groups of parameters; expected dicts only; put it into"),
        ({"params": [leaf()]}, "the parameters are dict; expected a Model, arrays"),
        ([{"params": nn.Linear(2, 2)}, {"params": nn.Linear(2, 2)}], "a name or an array occurs twice: w, b, w, b"),
    ],
)  # fmt: skip
def test_rejects_invalid_groups(groups: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[optimizer\] {text}"):
        optim.SGD(groups)


def test_rejects_parameters_of_two_groups() -> None:
    x = leaf()
    with pytest.raises(ArgumentError, match=r"\[optimizer\] 'parameter1' is in two groups, there as 'parameter0'"):
        optim.SGD([{"params": x}, {"params": [x]}])
    optimizer = optim.SGD([("w", x)])
    with pytest.raises(ArgumentError, match="'parameter1' is in two groups, there as 'w'"):
        optimizer.add_param_group({"params": x})
    assert len(optimizer.param_groups) == 1


def test_rejects_what_groups_cannot_change() -> None:
    group = optim.SGD([leaf()]).param_groups[0]
    with pytest.raises(ArgumentError, match="'nesterov' of a group is set; expected one of learning_rate, momentum"):
        group["nesterov"] = True
    with pytest.raises(ArgumentError, match=r"a group has no 'momentun'.*did you mean 'momentum'"):
        _ = group["momentun"]
    with pytest.raises(ArgumentError, match="learning_rate is nan; expected a finite number"):
        group["lr"] = float("nan")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"betas": (1.0, 0.9)}, "beta1 is 1.0; expected a number from 0 to below 1"),
        ({"betas": 0.9}, "betas is 0.9; expected the pair beta1, beta2"),
        ({"betas": (0.9,)}, r"betas is \(0.9,\); expected the pair beta1, beta2"),
        ({"eps": -1e-8}, "eps is -1e-08; expected a finite number, 0 or more"),
        ({"weight_decay": "a"}, "weight_decay is 'a'"),
        ({"amsgrad": 1}, "amsgrad is 1; expected True or False"),
        ({"master_weights": None}, "master_weights is None; expected True or False"),
    ],
)
def test_rejects_hyperparameters_of_adam(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[optimizer\] {text}"):
        optim.Adam([leaf()], **options)


def test_rejects_nesterov_with_dampening() -> None:
    with pytest.raises(ArgumentError, match=r"nesterov with a dampening of 0.5; expected dampening 0"):
        optim.SGD([leaf()], 0.1, 0.9, nesterov=True, dampening=0.5)


@pytest.mark.parametrize("compiled", [False, True])
def test_parameters_count_their_own_updates(compiled: bool) -> None:
    """As in torch, whose bias correction counts the steps in which a parameter had a gradient."""
    theirs, ours = TorchNetwork(), Network()
    reference = torch.optim.Adam(theirs.parameters(), 0.1)
    optimizer = optim.Adam(ours, 0.1)
    step: Any = optim.TrainStep(ours, optimizer, meta.cross_entropy)
    run = meta.vm.compile(step) if compiled else step
    for i, (x, target) in enumerate(batches(12)):
        if i in (3, 6):
            ours.first.w.requires_grad = theirs.first.weight.requires_grad = i == 6
            ours.train_mode()
        reference.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)).backward()
        reference.step()
        run(meta.array(x), meta.array(target))
    assert_equal_weights(ours, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)
    counts = {name: int(x.item()) for name, x in optimizer.state_dict().items() if name.endswith("step")}
    assert counts == {"first.w.step": 9, "first.b.step": 12, "last.w.step": 12, "last.b.step": 12}


def test_two_programs_count_the_parameters_that_they_update() -> None:
    """A program from before parameters were told apart is traced again."""
    w, b = leaf(), leaf()
    optimizer = optim.Adam([("w", w), ("b", b)], 0.1)

    def both() -> None:
        optimizer.zero_grad()
        (w * b).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def twice_and_one() -> None:
        both()
        (w * 2.0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    runs = [meta.vm.compile(meta.trace(f)) for f in (both, twice_and_one)]
    for i in (0, 0, 1, 0, 1):
        runs[i]()
    state = optimizer.state_dict()
    assert (state["w.step"].item(), state["b.step"].item()) == (7, 5)


def test_state_of_adam_round_trips() -> None:
    def trained(steps: int, state: dict[str, Any] | None = None) -> tuple[Network, Any]:
        model = Network()
        optimizer = optim.Adam(model, 0.1 if state is None else 0.7)
        if state is not None:
            model.load_state_dict({n: x for n, x in state.items() if n in dict(model.named_state())})
            optimizer.load_state_dict({n: x for n, x in state.items() if n not in dict(model.named_state())})
        run_steps(optim.TrainStep(model, optimizer, meta.cross_entropy), steps)
        return model, optimizer

    model, optimizer = trained(3)
    state = {n: x.detach().numpy().copy() for n, x in (model.state_dict() | optimizer.state_dict()).items()}
    assert state["learning_rate"] == 0.1
    assert state["first.w.step"] == 3
    assert all(type(x) is np.ndarray for x in state.values())
    again, other = trained(3, state)
    run_steps(optim.TrainStep(model, optimizer, meta.cross_entropy), 3)
    for name, x in model.named_state():
        np.testing.assert_array_equal(x.detach().numpy(), again.state_dict()[name].detach().numpy())
    other.load_state_dict(state := {n: x for n, x in state.items() if n in other.state_dict()} | {"first.w.step": 7})
    assert [int(other.state_dict()[f"{n}.step"].item()) for n in ("first.w", "first.b")] == [7, 3]
    with pytest.raises(
        ArgumentError, match=r"\[load_state_dict\] unknown: \['extra'\]; expected the names of the optimizer"
    ):
        other.load_state_dict(state | {"extra": 1})
    with pytest.raises(ArgumentError, match=r"\[load_state_dict\] the state is list; expected a mapping of names"):
        other.load_state_dict([])
    with pytest.raises(ArgumentError, match=r"learning_rate is -1\.0"):
        other.load_state_dict(state | {"learning_rate": -1.0})


def test_rates_in_traces() -> None:
    w = leaf()
    optimizer = optim.SGD([("w", w)], 0.1)

    def read() -> None:
        (w * optimizer.learning_rate).sum().backward()

    def write() -> None:
        optimizer.learning_rate = 0.5

    with pytest.raises(TraceError, match=r"the value of optimizer.learning_rate.* is needed while tracing"):
        meta.trace(read).ir()
    run = meta.vm.compile(meta.trace(write))
    for _ in range(2):
        run()
        assert optimizer.learning_rate == 0.5
        optimizer.learning_rate = 0.1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: optim.Adam(x, lr=0.1, learning_rate=0.1), r"\[Adam\] argument 'learning_rate' comes twice; exp"),
        (lambda x: optim.Adam(x, fused=True), r"\[Adam\] unknown argument 'fused'; .*; leave it out: compiled steps"),
        (lambda x: optim.SGD(x, momentun=0.1), r"\[SGD\] unknown argument 'momentun'.*write momentum=0.1"),
        (lambda x: optim.OneCycleLR(optim.SGD(x), 0.1, 5, epochs=3), r"\[OneCycleLR\] unknown argument 'epochs'"),
    ],
)  # fmt: skip
def test_rejects_unknown_arguments(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make([leaf()])


def test_groups_have_the_state_that_they_use() -> None:
    x, y = leaf(), leaf()
    optimizer = optim.Adam([{"params": x, "amsgrad": True}, {"params": y}])
    for each in (x, y):
        each.grad = meta.ones(2, "float64")
    optimizer.step()
    assert {n for n in optimizer.state_dict() if n.endswith("v_max")} == {"parameter0.v_max"}
    state = optimizer.state_dict() | {"learning_rate": 0.5, "group1.learning_rate": -1.0}
    with pytest.raises(ArgumentError, match=r"learning_rate is -1\.0"):
        optimizer.load_state_dict(state)
    assert optimizer.learning_rate == 1e-3, "nothing is written"
