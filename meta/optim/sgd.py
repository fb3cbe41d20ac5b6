"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import Scalars, StateNumber, where, widened
from meta.optim.optimizer import Optimizer, Updated
from meta.optim.train_step import TrainStep, with_optimizer


class SGD(Optimizer):
    """v <- momentum * v + (1 - dampening) * (dx + weight_decay * x);  x <- x - learning_rate * v, all in place
    (torch.optim.SGD's form). The first update of a parameter is not dampened.

    nesterov: step along momentum * v + dx + weight_decay * x instead; not with dampening.
    dampening: if it is 0 here, groups have no dampening, and updates are not counted.
    parameters, learning_rate, master_weights: see Optimizer. Further arguments of torch: `lr`.
    """

    flags = ("nesterov",)

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        dampening: float = 0.0,
        master_weights: bool = False,
    ) -> None:
        options: dict[str, Any] = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        self.counts_updates = dampening != 0
        if self.counts_updates:
            options["dampening"] = dampening
        super().__init__(parameters, learning_rate, master_weights=master_weights, **options)

    @property
    def momentum(self) -> float:
        return self.common("momentum")

    @momentum.setter
    def momentum(self, value: float) -> None:
        self.assign("momentum", value)

    @property
    def weight_decay(self) -> float:
        return self.common("weight_decay")

    @weight_decay.setter
    def weight_decay(self, value: float) -> None:
        self.assign("weight_decay", value)

    def check_group(self, group: ParamGroup) -> None:
        if group["nesterov"] and "dampening" in group and group["dampening"] > 0:
            problem = f"nesterov with a dampening of {group['dampening']}"
            raise ArgumentError("optimizer", problem, "dampening 0", "drop one of the two")

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("velocity",)

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        velocities = self.slots["velocity"]
        rate, momentum, decay = (group.numbers[n].array for n in ("learning_rate", "momentum", "weight_decay"))
        if count is None:
            for name, x, dx in updated:
                meta.sgd(x, dx, velocities[name], rate, momentum, decay, group["nesterov"])
            return
        values = {name: number.operand for name, number in group.numbers.items()}
        share = where(count.operand == 1, 1.0, 1 - values["dampening"])
        scalars = Scalars(decay=values["weight_decay"], share=share)
        for name, x, dx in updated:
            factor, part = scalars(x, "decay", "share")
            change = (widened(dx) + factor * widened(x)) * part
            meta.sgd(x, change.cast(x.dtype), velocities[name], rate, momentum, 0.0, group["nesterov"])


def with_sgd(
    learning_rate: float = 0.1, momentum: float = 0.0, weight_decay: float = 0.0, **options: object
) -> Callable[..., TrainStep]:
    """`with_sgd(0.1, 0.9)(model)` returns a training step: forward, backward and update in one callable.

    The model returns its loss, or `loss` computes it: `with_sgd(...)(model, loss=meta.cross_entropy)`. See
    `meta.optim.with_optimizer`, which does the same for every optimizer."""
    return with_optimizer(SGD, learning_rate, momentum, weight_decay, **options)
