"""Optimizers on a GPU: the weights of training on the CPU. The module is skipped without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import optim
from meta.testing import get_testable_devices
from tests.python.optim.training import Network, batches

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)

KINDS: dict[str, Any] = {
    "adamw": lambda model: optim.AdamW(model, 0.02, weight_decay=0.1),
    "amsgrad": lambda model: optim.Adam(model, 0.02, amsgrad=True),
    "adagrad": lambda model: optim.Adagrad(model, 0.1, rate_decay=0.1),
    "rmsprop": lambda model: optim.RMSprop(model, 0.01, momentum=0.5, centered=True, eps=1e-3),
    "lamb": lambda model: optim.LAMB(model, 0.02),
    "sgd": lambda model: optim.SGD(model, 0.1, 0.9, dampening=0.1),
}


@pytest.mark.parametrize("how", ["eager", "kernels", "graph"])
@pytest.mark.parametrize("name", KINDS)
def test_training_gives_the_same_as_on_the_cpu(name: str, how: str) -> None:
    """With a schedule, clipping and accumulation, all of them in the program."""
    states = []
    for device in ("cpu", "cuda"):
        meta.random.seed(0)  # a step's state has the generator's
        model = Network("float32").to(device)
        optimizer = KINDS[name](model)
        schedule = optim.CosineAnnealingLR(optimizer, 20)
        settings: dict[str, Any] = {"accumulate": 2, "clip_norm": 0.5, "schedule": schedule}
        step = optim.TrainStep(model, optimizer, meta.cross_entropy, **settings)
        run: Any = step if how == "eager" else meta.vm.compile(step, device=device, graphs=how == "graph")
        for x, target in batches(20, "float32"):
            run(meta.array(x, device=device), meta.array(target, device=device))
        assert schedule.count == 10
        states.append({n: x.detach().numpy() for n, x in step.state_dict().items()})
    for key, value in states[0].items():
        np.testing.assert_allclose(states[1][key], value, rtol=2e-3, atol=1e-4, err_msg=key)


def test_an_optimizer_follows_its_model_to_the_gpu() -> None:
    losses = []
    for move in (False, True):
        model = Network("float32")
        optimizer = optim.AdamW(model, 0.02)
        step = optim.TrainStep(model, optimizer, meta.cross_entropy, schedule=optim.ExponentialLR(optimizer, 0.9))
        for i, (x, target) in enumerate(batches(8, "float32")):
            device = "cuda" if move and i >= 4 else "cpu"
            model.to(device)
            loss = step(meta.array(x, device=device), meta.array(target, device=device))
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
