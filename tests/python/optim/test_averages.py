"""Averages of weights and states of torch: equal to torch's, eagerly and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import meta
from meta import nn, optim
from meta.errors import ArgumentError
from tests.python.optim.training import Network, TorchNetwork, assert_equal_weights, batches, run_steps

STEPS = 8


def torch_averages(kind: str) -> list[np.ndarray]:
    model = TorchNetwork()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7) if kind == "EMA" else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    for x, target in batches(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(target)).backward()
        optimizer.step()
        average.update_parameters(model)
    return [x.detach().numpy() for x in average.module.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["EMA", "SWA"])
def test_averages_equal_torch(kind: str, compiled: bool, tmp_path: Path) -> None:
    model = Network()
    average = optim.EMA(model, 0.7) if kind == "EMA" else optim.SWA(model)
    step: Any = optim.TrainStep(model, optim.SGD(model, 0.3), meta.cross_entropy, average=average)
    run = meta.vm.compile(step) if compiled else step
    predict = meta.vm.compile(model)
    x = meta.array(batches(1)[0][0])
    run_steps(run, STEPS)
    trained, before = [p.detach().numpy().copy() for p in model.parameters()], predict(x).detach().numpy()
    with average.applied():
        assert_equal_weights(model, torch_averages(kind), rtol=1e-9)
        averaged = predict(x).detach().numpy()
    assert_equal_weights(model, trained, rtol=0, atol=0)
    assert not np.array_equal(averaged, before)
    np.testing.assert_array_equal(predict(x).detach().numpy(), before)
    meta.save(tmp_path / "step.safetensors", run)
    other = Network()
    again = type(average)(other)
    meta.load(
        tmp_path / "step.safetensors", optim.TrainStep(other, optim.SGD(other), meta.cross_entropy, average=again)
    )
    again.copy_to_model()
    assert_equal_weights(other, torch_averages(kind), rtol=1e-9)


STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "adam": ("AdamW", {"lr": 0.03, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    "amsgrad": ("Adam", {"lr": 0.03, "amsgrad": True}),
    "sgd": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd without momentum": ("SGD", {"lr": 0.1}),
    "rmsprop": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}),
    "adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    "radam": ("RAdam", {"lr": 0.05}),
    "adafactor": ("Adafactor", {"lr": 0.05}),
}


@pytest.mark.parametrize("name", STATES)
def test_training_goes_on_from_torch(name: str) -> None:
    """Half of the steps in torch, half in meta: the weights are those of torch after all steps."""
    kind, options = STATES[name]
    theirs = TorchNetwork()
    optimizer = getattr(torch.optim, kind)(theirs.parameters(), **options)
    model = Network()
    for i, (x, target) in enumerate(batches(STEPS)):
        if i == STEPS // 2:
            model.load_torch_state_dict(theirs.state_dict())
            flags = {n: v for n, v in options.items() if isinstance(v, bool)}
            ours = getattr(optim, kind)(model, **flags)
            ours.load_torch_state_dict(optimizer.state_dict())
            run = meta.vm.compile(optim.TrainStep(model, ours, meta.cross_entropy))
        if i >= STEPS // 2:
            run(x, target)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(target)).backward()
        optimizer.step()
    assert_equal_weights(model, [p.detach().numpy() for p in theirs.parameters()], rtol=1e-9)


def test_rejects_states_that_do_not_fit() -> None:
    optimizer = optim.Adam(Network())
    with pytest.raises(
        ArgumentError, match=r"\[load_torch_state_dict\] the state is .*; expected what torch's optimiz"
    ):
        optimizer.load_torch_state_dict({"x": 1})
    other = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    with pytest.raises(ArgumentError, match=r"groups of \[2\] parameters; expected \[4\], as in the optimizer"):
        optimizer.load_torch_state_dict(other.state_dict())


def test_torch_loads_a_models_state(tmp_path: Path) -> None:
    ours = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.LSTM(3, 2))
    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.LSTM(3, 2))
    state = {name: torch.from_dlpack(x) for name, x in ours.torch_state_dict().items()}
    theirs.load_state_dict(state)
    for name, x in theirs.state_dict().items():
        np.testing.assert_array_equal(x.numpy(), ours.torch_state_dict()[name].numpy())
    again = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.LSTM(3, 2))
    meta.save(tmp_path / "model.safetensors", ours.torch_state_dict())
    again.load_torch_state_dict(meta.load(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(again[0].w.detach().numpy(), ours[0].w.detach().numpy())


def test_numel() -> None:
    x = meta.ones((2, 3))
    assert x.numel() == 6
    assert meta.vm.compile(lambda x: x * x.numel())(x).numpy().tolist() == [[6.0] * 3] * 2
