"""Adagrad."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta.eager.ndarray import NDArray
from meta.optim.group import Parameters, ParamGroup, hyperparameter
from meta.optim.number import StateNumber, as_array
from meta.optim.optimizer import Optimizer, Updated


class Adagrad(Optimizer):
    """s <- s + g**2 with g = dx + weight_decay * x;  x <- x - learning_rate / (1 + (t - 1) * rate_decay) * g /
    (sqrt(s) + eps) in the t-th update of x (J. Duchi et al., 2011; torch.optim.Adagrad, whose `lr_decay` is
    `rate_decay`).

    initial_sum: what s starts with.  parameters, learning_rate, master_weights: see Optimizer.
    """

    counts_updates = True

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = 0.01,
        rate_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_sum: float = 0.0,
        eps: float = 1e-10,
        *,
        master_weights: bool = False,
    ) -> None:
        self._initial_sum = hyperparameter("initial_sum", initial_sum)
        super().__init__(
            parameters, learning_rate, master_weights=master_weights, rate_decay=rate_decay, weight_decay=weight_decay,
            eps=eps,
        )  # fmt: skip

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("sum",)

    def initial_slot(self, slot: str, x: NDArray, dtype: str) -> NDArray:
        return meta.full(x.shape, self._initial_sum, dtype, x.device)

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        assert count is not None
        rate, rate_decay, weight_decay, eps = (number.operand for number in group.numbers.values())
        rate = rate / (1 + (count.operand - 1) * rate_decay)
        device = updated[0].x.device
        rate, eps, decay = (as_array(value, device) for value in (rate, eps, weight_decay))
        for name, x, dx in updated:
            meta.adagrad(x, dx, self.slots["sum"][name], rate, eps, decay)
