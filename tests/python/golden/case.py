"""What a golden program is: an executor, the calls of it, and helpers that build both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meta


@dataclass(frozen=True, slots=True)
class Case:
    """A compiled program and the arguments of each of its calls.

    results: runs it and returns the results, in order; by default the executor's of all calls.
    runs: False for a program that is compiled but not run, because it needs other processes.
    on_cuda: whether it is planned for CUDA, too."""

    executor: meta.vm.Executor[..., Any]
    calls: Sequence[tuple[Any, ...]]
    results: Callable[[], Sequence[Any]] | None = None
    runs: bool = True
    on_cuda: bool = True

    def run(self) -> list[Any]:
        if not self.runs:
            return []
        if self.results is not None:
            return list(self.results())
        return [self.executor(*args) for args in self.calls]


def normal(*shape: int, seed: int = 0) -> meta.NDArray:
    """An array of normal random numbers, float32."""
    return meta.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def classes(*shape: int, count: int, seed: int = 1) -> meta.NDArray:
    """An array of random classes or tokens, int64."""
    return meta.array(np.random.default_rng(seed).integers(0, count, shape))


def training(
    model: Callable[..., Any], optimizer: meta.optim.Optimizer, batch: tuple[Any, ...], *, steps: int = 3,
    loss: Callable[..., Any] | None = meta.cross_entropy, settings: Mapping[str, Any] | None = None, **options: Any,
) -> Case:  # fmt: skip
    """Steps of training on one batch. settings: of the TrainStep.  options: of `meta.vm.compile`."""
    step = meta.optim.TrainStep(model, optimizer, loss=loss, **(settings or {}))
    return Case(meta.vm.compile(step, **options), [batch] * steps)
