"""Lion."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.optim.adam import Betas
from meta.optim.formula import FormulaOptimizer, State
from meta.optim.group import Parameters, ParamGroup


class Lion(FormulaOptimizer):
    """x <- x - learning_rate * (sign(beta1 * m + (1 - beta1) * dx) + weight_decay * x);  m <- beta2 * m + (1 - beta2) *
    dx (X. Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023).

    It takes a learning rate 3 to 10 times smaller than AdamW, and a weight decay that is larger by as much.
    parameters, learning_rate, master_weights: see Optimizer; betas: see Adam.
    """

    def __init__(
        self,
        parameters: Parameters,
        learning_rate: float = 1e-4,
        betas: Betas = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        master_weights: bool = False,
    ) -> None:
        super().__init__(
            parameters, learning_rate, betas=betas, weight_decay=weight_decay, master_weights=master_weights
        )

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("m",)

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        m = state["m"]
        direction = meta.sign(n.beta1 * m + n.rest1 * g)
        return n.shrink * x - n.learning_rate * direction, {"m": n.beta2 * m + n.rest2 * g}
