"""LAMB."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta.optim.adam import BETAS, Betas, Moments
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import Scalars, StateNumber, widened, write
from meta.optim.optimizer import Updated


class LAMB(Moments):
    """m <- beta1 * m + (1 - beta1) * dx;  v <- beta2 * v + (1 - beta2) * dx**2;
    r = (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps) + weight_decay * x;
    x <- x - learning_rate * |x| / |r| * r in the t-th update of x, with Euclidean norms of the whole parameter (Y. You
    et al., 2020). Where a norm is 0, the ratio is 1.

    parameters, learning_rate, master_weights: see Optimizer; betas: see Adam.
    """

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, betas: Betas = BETAS, eps: float = 1e-6,
        weight_decay: float = 0.01, *, master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, master_weights=master_weights)

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        rate, beta1, beta2, eps, decay, correction1, correction2 = self.operands(group, count)
        scalars = Scalars(
            rate=rate, beta1=beta1, beta2=beta2, eps=eps, decay=decay, rest1=1 - beta1, rest2=1 - beta2,
            correction1=correction1, correction2=correction2,
        )  # fmt: skip
        for name, x, dx in updated:
            rate, eps, decay = scalars(x, "rate", "eps", "decay")
            beta1, beta2, rest1, rest2 = scalars(x, "beta1", "beta2", "rest1", "rest2")
            correction1, correction2 = scalars(x, "correction1", "correction2")
            old, g = widened(x), widened(dx)
            m, v = self.slots["m"][name], self.slots["v"][name]
            mean = beta1 * widened(m) + rest1 * g
            square_mean = beta2 * widened(v) + rest2 * (g * g)
            change = (mean / correction1) / (meta.sqrt(square_mean / correction2) + eps) + decay * old
            lengths = meta.sqrt(meta.sum(old * old)), meta.sqrt(meta.sum(change * change))
            usable = meta.logical_and(lengths[0] > 0, lengths[1] > 0)
            ratio = meta.where(usable, lengths[0] / lengths[1], meta.ones_like(lengths[0]))
            write(m, mean)
            write(v, square_mean)
            write(x, old - rate * ratio * change)
