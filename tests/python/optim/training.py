"""A small network that meta and torch train on the same data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import meta
from meta import nn

FEATURES, HIDDEN, CLASSES, BATCH = 3, 4, 2, 6
NAMES = ("first.w", "first.b", "last.w", "last.b")


class Network(meta.Model):
    def build(self, dtype: str = "float64") -> None:
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.last = nn.Linear(HIDDEN, CLASSES)
        self.to(dtype=dtype)
        self.load_state_dict({name: value.astype(dtype) for name, value in weights().items()})

    def forward(self, x: Any) -> Any:
        return self.last(meta.tanh(self.first(x)))


class TorchNetwork(torch.nn.Module):
    def __init__(self, dtype: str = "float64") -> None:
        super().__init__()
        self.first = torch.nn.Linear(FEATURES, HIDDEN)
        self.last = torch.nn.Linear(HIDDEN, CLASSES)
        self.to(getattr(torch, dtype))
        values = zip(self.parameters(), weights().values(), strict=True)
        with torch.no_grad():
            for parameter, value in values:
                parameter.copy_(torch.tensor(value))

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.first(x)))


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = ((HIDDEN, FEATURES), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
    return {name: rng.normal(0, 0.7, shape) for name, shape in zip(NAMES, shapes, strict=True)}


def batches(count: int, dtype: str = "float64") -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    inputs = [rng.normal(size=(BATCH, FEATURES)).astype(dtype) for _ in range(count)]
    return [(x, (x[:, 0] + 0.3 * rng.normal(size=BATCH) > 0).astype("int64")) for x in inputs]


def torch_trajectory(
    make: Callable[[TorchNetwork], torch.optim.Optimizer],
    steps: int,
    dtype: str = "float64",
    *,
    after_backward: Callable[[TorchNetwork, int], Any] = lambda model, i: None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
) -> list[np.ndarray]:
    """The weights after training with torch. after_backward: changes gradients."""
    model = TorchNetwork(dtype)
    optimizer = make(model)
    scheduler = schedule(optimizer) if schedule else None
    for i, (x, target) in enumerate(batches(steps, dtype)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(target)).backward()
        after_backward(model, i)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return [p.detach().numpy() for p in model.parameters()]


def run_steps(step: Callable[..., Any], steps: int, dtype: str = "float64") -> None:
    for x, target in batches(steps, dtype):
        step(meta.array(x), meta.array(target))


def assert_equal_weights(model: Network, expected: list[np.ndarray], rtol: float, atol: float = 1e-12) -> None:
    for (name, x), value in zip(model.named_parameters(), expected, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), value, rtol=rtol, atol=atol, err_msg=name)
