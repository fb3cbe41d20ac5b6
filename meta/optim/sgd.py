"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import meta
from meta import tracing
from meta.eager.ndarray import NDArray
from meta.model.model import Model
from meta.optim.optimizer import Optimizer, TrainStep, hyperparameter


class SGD(Optimizer):
    """v <- momentum * v + dx + weight_decay * x;  x <- x - learning_rate * v, all in place (torch.optim.SGD's form).

    parameters: a Model, or arrays, or (name, array) pairs.
    """

    def __init__(
        self,
        parameters: Model | Iterable[NDArray | tuple[str, NDArray]],
        learning_rate: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, learning_rate)
        self.momentum = hyperparameter("momentum", momentum)
        self.weight_decay = hyperparameter("weight_decay", weight_decay)
        self.slots["velocity"] = {
            name: meta.zeros(x.shape, x.dtype, x.device) for name, x in self.named if x.requires_grad
        }

    def __setattr__(self, name: str, value: Any) -> None:
        """Momentum and weight decay are constants of traced programs; a new value invalidates these programs."""
        if name in ("momentum", "weight_decay") and self.__dict__.get(name, value) != value:
            tracing.invalidate()
        object.__setattr__(self, name, value)

    def update(self, name: str, x: NDArray, dx: NDArray) -> None:
        velocity = self.slots["velocity"][name]
        meta.sgd(x, dx, velocity, self._learning_rate, self.momentum, self.weight_decay)


def with_sgd(learning_rate: float = 0.1, momentum: float = 0.0, weight_decay: float = 0.0) -> Callable[..., TrainStep]:
    """`with_sgd(0.1, 0.9)(model)` returns a training step: forward, backward and update in one callable.

    The model returns its loss, or `loss` computes it: `with_sgd(...)(model, loss=meta.cross_entropy)`."""

    def wrap(model: Any, loss: Callable[..., Any] | None = None) -> TrainStep:
        return TrainStep(model, SGD(model, learning_rate, momentum, weight_decay), loss)

    return wrap
