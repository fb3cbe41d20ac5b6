"""What checks of training share: a network, steps that start from one seed, and the comparison with one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meta
from meta import distributed, nn, optim

RANK, RANKS = distributed.rank(), distributed.world_size()
BATCH, STEPS = 8, 4

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optim.with_optimizer(optim.SGD, 0.1, momentum=0.9, weight_decay=0.01),
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


def assert_equal_training(step: Any, losses: list[float], one: Any, expected: list[float], dtype: str, of: str) -> None:
    """Losses of a step on several ranks, and its parameters after them, equal those of `one`, the step of one process.

    of: what is compared, for the message."""
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(losses, expected, tolerance, err_msg=of)
    with distributed.gathered(step) as whole:
        state = {name: x.detach().numpy() for name, x in whole.state_dict().items()}
    for name, x in state.items():
        weight = one.model.state_dict()[name].detach().numpy()
        np.testing.assert_allclose(x, weight, 10 * tolerance, 10 * tolerance, err_msg=f"{of} {name}")
