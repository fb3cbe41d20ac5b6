"""Optimizers train as those of torch, over 100 steps, eagerly and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta
from meta import optim
from tests.python.optim.training import Network, assert_equal_weights, batches, run_steps, torch_trajectory

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
    "sgd-dampening": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01, "dampening": 0.3}),
}


@pytest.mark.parametrize("name", CASES)
def test_eager_and_compiled_steps_equal_torch(name: str) -> None:
    """In float64, with one program for all steps."""
    ours, theirs, options = CASES[name]
    expected = torch_trajectory(lambda model: theirs(model.parameters(), 0.02, **options), STEPS)
    for compiled in (False, True):
        model = Network()
        step: Any = optim.with_optimizer(ours, 0.02, **options)(model, loss=meta.cross_entropy)
        run = meta.vm.compile(step) if compiled else step
        first = run.program(*BATCH) if compiled else None
        run_steps(run, STEPS)
        assert_equal_weights(model, expected, rtol=1e-9)
        assert not compiled or run.program(*BATCH) is first


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_float32_stays_close_to_torch(name: str) -> None:
    ours, theirs, options = CASES[name]
    expected = torch_trajectory(lambda model: theirs(model.parameters(), 0.02, **options), STEPS, "float32")
    model = Network("float32")
    run_steps(optim.with_optimizer(ours, 0.02, **options)(model, loss=meta.cross_entropy), STEPS, "float32")
    assert_equal_weights(model, expected, rtol=1e-4, atol=1e-5)
