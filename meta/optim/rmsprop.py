"""RMSprop."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import Number, Scalars, widened, write
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

    def update_group(self, group: ParamGroup, count: Number | None, updated: Sequence[Updated]) -> None:
        values = {name: number.operand for name, number in group.numbers.items()}
        scalars = Scalars(**values, rest=1 - values["alpha"])
        for name, x, dx in updated:
            rate, eps, decay, momentum = scalars(x, "learning_rate", "eps", "weight_decay", "momentum")
            alpha, rest = scalars(x, "alpha", "rest")
            old, state, velocity = widened(x), self.slots["square_mean"][name], self.slots["velocity"][name]
            g = widened(dx) + decay * old
            square_mean = alpha * widened(state) + rest * (g * g)
            write(state, square_mean)
            if group["centered"]:
                mean = alpha * widened(self.slots["mean"][name]) + rest * g
                write(self.slots["mean"][name], mean)
                square_mean = square_mean - mean * mean
            change = momentum * widened(velocity) + g / (meta.sqrt(square_mean) + eps)
            write(velocity, change)
            write(x, old - rate * change)
