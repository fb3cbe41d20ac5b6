"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import meta
from meta.eager.ndarray import NDArray, array
from meta.model.model import Model
from meta.optim.optimizer import Optimizer, TrainStep, hyperparameter


class SGD(Optimizer):
    """v <- momentum * v + dx + weight_decay * x;  x <- x - learning_rate * v, all in place (torch.optim.SGD's form).

    parameters: a Model, or arrays, or (name, array) pairs.
    momentum and weight_decay are 0-d arrays, as the learning rate is: new values need no recompilation.
    """

    def __init__(
        self,
        parameters: Model | Iterable[NDArray | tuple[str, NDArray]],
        learning_rate: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, learning_rate)
        device = self._learning_rate.device
        self._momentum = array(hyperparameter("momentum", momentum), dtype="float64", device=device)
        self._weight_decay = array(hyperparameter("weight_decay", weight_decay), dtype="float64", device=device)
        self._numbers += [self._momentum, self._weight_decay]
        self.slots["velocity"] = {
            name: meta.zeros(x.shape, x.dtype, x.device) for name, x in self.named if x.requires_grad
        }

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        yield from super().named_state()
        yield "momentum", self._momentum
        yield "weight_decay", self._weight_decay

    @property
    def momentum(self) -> float:
        return float(self._momentum.item())

    @momentum.setter
    def momentum(self, value: float) -> None:
        _assign(self._momentum, "momentum", value)

    @property
    def weight_decay(self) -> float:
        return float(self._weight_decay.item())

    @weight_decay.setter
    def weight_decay(self, value: float) -> None:
        _assign(self._weight_decay, "weight_decay", value)

    def update(self, name: str, x: NDArray, dx: NDArray) -> None:
        velocity = self.slots["velocity"][name]
        meta.sgd(x, dx, velocity, self._learning_rate, self._momentum, self._weight_decay)


def _assign(number: NDArray, name: str, value: float) -> None:
    number.update(array(hyperparameter(name, value), dtype="float64", device=number.device))


def with_sgd(learning_rate: float = 0.1, momentum: float = 0.0, weight_decay: float = 0.0) -> Callable[..., TrainStep]:
    """`with_sgd(0.1, 0.9)(model)` returns a training step: forward, backward and update in one callable.

    The model returns its loss, or `loss` computes it: `with_sgd(...)(model, loss=meta.cross_entropy)`."""

    def wrap(model: Any, loss: Callable[..., Any] | None = None) -> TrainStep:
        return TrainStep(model, SGD(model, learning_rate, momentum, weight_decay), loss)

    return wrap
