"""Optimizers train as those of torch, over 100 steps, eagerly and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta
from meta import optim
from tests.python.optim.training import Network, assert_equal_weights, batches, run_steps, torch_trajectory


class TorchLAMB(torch.optim.Optimizer):
    """Algorithm 2 of Y. You et al., 2020, with the identity as the function phi."""

    def __init__(self, parameters: Any, lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        group = self.param_groups[0]
        for x in group["params"]:
            state = self.state[x]
            t = state["t"] = state.get("t", 0) + 1
            m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * x.grad
            v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * x.grad**2
            r = m / (1 - 0.9**t) / (torch.sqrt(v / (1 - 0.999**t)) + 1e-6) + group["weight_decay"] * x
            x -= group["lr"] * torch.linalg.norm(x) / torch.linalg.norm(r) * r


class TorchLANS(TorchLAMB):
    """Algorithm 2 of S. Zheng et al., 2020, with the identity as the function phi."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        group = self.param_groups[0]
        for x in group["params"]:
            state = self.state[x]
            t = state["t"] = state.get("t", 0) + 1
            g = x.grad / torch.linalg.norm(x.grad)
            m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
            v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g**2
            s = torch.sqrt(v / (1 - 0.999**t)) + 1e-6
            r = m / (1 - 0.9**t) / s + group["weight_decay"] * x
            c = g / s + group["weight_decay"] * x
            direction = 0.9 * r / torch.linalg.norm(r) + 0.1 * c / torch.linalg.norm(c)
            x -= group["lr"] * torch.linalg.norm(x) * direction


STEPS = 100
BATCH = tuple(map(meta.array, batches(1)[0]))
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "adam": (optim.Adam, torch.optim.Adam, {}),
    "adam-decay": (optim.Adam, torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    "adam-amsgrad": (optim.Adam, torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    "adamw": (optim.AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
    "adamw-amsgrad": (optim.AdamW, torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True, "betas": (0.5, 0.7)}),
    "sgd": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "sgd-nesterov": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    "adagrad": (optim.Adagrad, torch.optim.Adagrad, {}),
    "adagrad-decay": (optim.Adagrad, torch.optim.Adagrad, {"rate_decay": 0.1, "weight_decay": 0.1, "initial_sum": 0.5}),
    "rmsprop": (optim.RMSprop, torch.optim.RMSprop, {"weight_decay": 0.1}),
    "rmsprop-centered": (optim.RMSprop, torch.optim.RMSprop, {"alpha": 0.9, "centered": True, "momentum": 0.7}),
    "lamb": (optim.LAMB, TorchLAMB, {"weight_decay": 0.1}),
    "lans": (optim.LANS, TorchLANS, {"weight_decay": 0.1}),
    "sgd-dampening": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01, "dampening": 0.3}),
}


TORCH_NAMES = {"rate_decay": "lr_decay", "initial_sum": "initial_accumulator_value"}


def torch_options(options: dict[str, Any]) -> dict[str, Any]:
    return {TORCH_NAMES.get(name, name): value for name, value in options.items()}


@pytest.mark.parametrize("name", CASES)
def test_eager_and_compiled_steps_equal_torch(name: str) -> None:
    """In float64, with one program for all steps."""
    ours, theirs, options = CASES[name]
    expected = torch_trajectory(lambda model: theirs(model.parameters(), 0.02, **torch_options(options)), STEPS)
    for compiled in (False, True):
        model = Network()
        step: Any = optim.with_optimizer(ours, 0.02, **options)(model, loss=meta.cross_entropy)
        run = meta.vm.compile(step) if compiled else step
        first = run.program(*BATCH) if compiled else None
        run_steps(run, STEPS)
        assert_equal_weights(model, expected, rtol=1e-9)
        assert not compiled or run.program(*BATCH) is first


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop", "lamb", "sgd"])
def test_float32_stays_close_to_torch(name: str) -> None:
    ours, theirs, options = CASES[name]
    expected = torch_trajectory(
        lambda model: theirs(model.parameters(), 0.02, **torch_options(options)), STEPS, "float32"
    )
    model = Network("float32")
    run_steps(optim.with_optimizer(ours, 0.02, **options)(model, loss=meta.cross_entropy), STEPS, "float32")
    assert_equal_weights(model, expected, rtol=1e-4, atol=1e-5)
