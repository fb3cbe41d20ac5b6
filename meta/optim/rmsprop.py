"""RMSprop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import StateNumber
from meta.optim.optimizer import Optimizer, Updated


class RMSprop(Optimizer):
    """s <- alpha * s + (1 - alpha) * g**2 with g = dx + weight_decay * x; v <- momentum * v + g / (sqrt(s) + eps);
    x <- x - learning_rate * v (T. Tieleman and G. Hinton, 2012; torch.optim.RMSprop).

    centered: s - mean**2 in place of s, where mean <- alpha * mean + (1 - alpha) * g (A. Graves, 2013).
    parameters, learning_rate, master_weights: see Optimizer.
    """

    flags = ("centered",)

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        *,
        centered: bool = False,
        master_weights: bool = False,
    ) -> None:
        super().__init__(
            parameters, learning_rate, master_weights=master_weights, alpha=alpha, eps=eps, weight_decay=weight_decay,
            momentum=momentum, centered=centered,
        )  # fmt: skip

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("square_mean", "velocity", "mean") if group["centered"] else ("square_mean", "velocity")

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        names = ("learning_rate", "alpha", "eps", "weight_decay", "momentum")
        numbers = [group.numbers[name].array for name in names]
        step: Any = meta.rmsprop_centered if group["centered"] else meta.rmsprop
        for name, x, dx in updated:
            step(x, dx, *(self.slots[slot][name] for slot in self.slot_names(group)), *numbers)
