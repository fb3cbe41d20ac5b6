"""LAMB and LANS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.optim.adam import BETAS, Betas, Moments
from meta.optim.formula import State
from meta.optim.group import Parameters

Direction = Callable[[Any], Any]
"""A moment scaled by the deviations of the gradient, with weight decay, as long as the parameter."""


class LAMB(Moments):
    """m <- beta1 * m + (1 - beta1) * dx;  v <- beta2 * v + (1 - beta2) * dx**2;
    r = (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps) + weight_decay * x;
    x <- x - learning_rate * |x| / |r| * r in the t-th update of x, with Euclidean norms of the whole parameter (Y. You
    et al., 2020). Where a norm is 0, the ratio is 1.

    parameters, learning_rate, master_weights: see Optimizer; betas: see Adam.
    """

    reads_whole_parameters = True

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, betas: Betas = BETAS, eps: float = 1e-6,
        weight_decay: float = 0.01, *, master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, master_weights=master_weights)

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        g = self.prepared(g)
        m = n.beta1 * state["m"] + n.rest1 * g
        v = n.beta2 * state["v"] + n.rest2 * (g * g)
        scale = meta.sqrt(v / n.correction2) + n.eps

        def direction(moment: Any) -> Any:
            change = moment / scale + n.weight_decay * x
            return _ratio(_length(x), _length(change)) * change

        change = self.change(direction, m / n.correction1, g, n)
        return x - n.learning_rate * change, {"m": m, "v": v}

    def prepared(self, g: Tensor) -> Any:
        """The gradient that the moments take."""
        return g

    def change(self, direction: Direction, momentum: object, g: Tensor, n: Any) -> Any:
        """The change of a parameter for a learning rate of 1."""
        return direction(momentum)


class LANS(LAMB):
    """g = dx / |dx|;  m <- beta1 * m + (1 - beta1) * g;  v <- beta2 * v + (1 - beta2) * g**2;
    s = sqrt(v / (1 - beta2**t)) + eps;  r = m / (1 - beta1**t) / s + weight_decay * x;  c = g / s + weight_decay * x;
    x <- x - learning_rate * |x| * (beta1 * r / |r| + (1 - beta1) * c / |c|) in the t-th update of x, with Euclidean
    norms of the whole parameter (S. Zheng et al., "Accelerated Large Batch Optimization of BERT Pretraining in 54
    minutes", 2020). A gradient of norm 0 stays 0; where another norm is 0, its ratio is 1.

    Its arguments are the same as for LAMB.
    """

    def prepared(self, g: Tensor) -> Any:
        length = _length(g)
        return g * _ratio(meta.ones_like(length), length)

    def change(self, direction: Direction, momentum: object, g: Tensor, n: Any) -> Any:
        return n.beta1 * direction(momentum) + n.rest1 * direction(g)


def _length(x: Tensor) -> Any:
    """The Euclidean norm."""
    return meta.sqrt(meta.sum(x * x))


def _ratio(a: Any, b: Any) -> Any:
    """The ratio of two norms; 1 where one of them is 0."""
    return meta.where(meta.logical_and(a > 0, b > 0), a / b, meta.ones_like(a))
