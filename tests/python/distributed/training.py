"""Parts that checks of training share: a network, steps that start from one seed, and the comparison with one
process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import torch

import meta
from meta import distributed, nn, optim
from meta.interpreter.run import run as interpret
from meta.random.generator import default_generator

RANK, RANKS = distributed.rank(), distributed.world_size()
BATCH, STEPS = 8, 4

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optim.with_optimizer(optim.SGD, 0.1, momentum=0.9, weight_decay=0.01),
    "slow sgd": optim.with_optimizer(optim.SGD, 0.002, momentum=0.9),
    "adamw": optim.with_optimizer(optim.AdamW, 0.01),
}


class MLP(meta.Model):
    def build(self, features: int = 5, hidden: int = 7, classes: int = 3) -> None:
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def vectors(generator: Any, dtype: str) -> tuple[Any, Any]:
    """A batch for MLP(): inputs and targets."""
    return generator.standard_normal((BATCH, 5)).astype(dtype), generator.integers(0, 3, BATCH)


def new_step(model: Callable[[], Any], optimizer: str, dtype: str, **options: Any) -> Any:
    meta.random.seed(0)
    return OPTIMIZERS[optimizer](model().to(dtype=dtype), loss=meta.cross_entropy, **options)


def kernels(model: str) -> AbstractContextManager[None]:
    """The dialects that a model runs with: only for "mlp" are kernels compiled. The others call torch, in a twentieth
    of the time; passes and messages are the same."""
    return nullcontext() if model == "mlp" else meta.with_dialect(["torch", "reference"])


def interpreted(step: Any) -> Callable[..., Any]:
    """A step whose program runs operator by operator: what it computes, without compiling it."""
    records: list[Any] = []

    def run(*args: Any) -> Any:
        if not records:
            records.append(step.record(*args))
        (record,) = records
        keys = [(draws.generator or default_generator).draw(count=draws.count) for draws in record.random]
        arrays = [*args, *(x for _, x in record.state), *keys]
        with meta.autograd.no_grad():
            results = interpret(record.module, *arrays)
            for i, changed in record.main.attrs["mutates"].items():
                arrays[changed].update(results[i])
        return results[0]

    return run


Training: TypeAlias = "tuple[list[float], dict[str, Any]]"
"""The losses of a few steps, and the parameters and buffers after them."""
_KNOWN: dict[str, Training] = {}


def of_one_process(what: str, train: Callable[[], Training]) -> Training:
    """The results of one process, by name. Rank 0 does it once, for all ranks."""
    if what not in _KNOWN:
        shared = [train() if RANK == 0 else None]
        if RANKS > 1:
            torch.distributed.broadcast_object_list(shared)
        (result,) = shared
        assert result is not None
        _KNOWN[what] = result
    return _KNOWN[what]


def values_of(model: Any) -> dict[str, Any]:
    return {name: x.detach().numpy().copy() for name, x in model.state_dict().items()}


def assert_equal_training(step: Any, losses: list[float], one: Training, dtype: str, of: str) -> None:
    """Losses of a step on several ranks, and its parameters after them, equal those of one process.

    of: what is compared, for the message."""
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(losses, one[0], tolerance, err_msg=of)
    with distributed.gathered(step) as whole:
        state = values_of(whole)
    for name, x in state.items():
        np.testing.assert_allclose(x, one[1][name], 10 * tolerance, 10 * tolerance, err_msg=f"{of} {name}")
