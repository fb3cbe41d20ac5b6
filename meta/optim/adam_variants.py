"""NAdam and RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.optim.adam import BETAS, Betas, Moments
from meta.optim.formula import State
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import where


class _Decayed(Moments):
    """Moments with weight decay, added to the gradient or decoupled from it."""

    flags = ("decoupled",)

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        numbers = super().numbers(group, values, count)
        unused = {"weight_decay": 0.0} if group["decoupled"] else {"shrink": 1.0}
        return {**numbers, **unused}

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        g = g + n.weight_decay * x
        m = n.beta1 * state["m"] + n.rest1 * g
        v = n.beta2 * state["v"] + n.rest2 * (g * g)
        change, changed = self.change(g, m, v, state, n)
        return n.shrink * x - change, {"m": m, "v": v, **changed}

    def change(self, g: Tensor, m: Tensor, v: Tensor, state: State, n: Any) -> tuple[Any, State]:
        """What is subtracted from the parameter, and further new state. m, v: the new means."""
        raise NotImplementedError


class NAdam(_Decayed):
    """m and v as in Adam;  mu(t) = beta1 * (1 - 0.96**(t * momentum_decay) / 2);  p <- p * mu(t), from 1;
    x <- x - learning_rate * ((1 - mu(t)) / (1 - p) * g + mu(t + 1) / (1 - p * mu(t + 1)) * m) / (sqrt(v / (1 -
    beta2**t)) + eps) in the t-th update of x (T. Dozat, 2016; torch.optim.NAdam).

    decoupled: as in Adam.  parameters, learning_rate, master_weights: see Optimizer; betas: see Adam.
    """

    def __init__(
        self, parameters: Parameters, learning_rate: float = 2e-3, betas: Betas = BETAS, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled: bool = False, *,
        master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, momentum_decay=momentum_decay,
                         decoupled=decoupled, master_weights=master_weights)  # fmt: skip

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("m", "v", "mu_product")

    def initial_slot(self, slot: str, x: NDArray, dtype: str) -> NDArray:
        return meta.ones((), dtype, x.device) if slot == "mu_product" else super().initial_slot(slot, x, dtype)

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        mu, mu_next = (values["beta1"] * (1 - 0.5 * 0.96 ** (t * values["momentum_decay"])) for t in (count, count + 1))
        return {**super().numbers(group, values, count), "mu": mu, "mu_rest": 1 - mu, "mu_next": mu_next}

    def change(self, g: Tensor, m: Tensor, v: Tensor, state: State, n: Any) -> tuple[Any, State]:
        product = state["mu_product"] * n.mu
        step = n.mu_rest / (1 - product) * g + n.mu_next / (1 - product * n.mu_next) * m
        return n.learning_rate * step / (meta.sqrt(v / n.correction2) + n.eps), {"mu_product": product}


class RAdam(_Decayed):
    """m and v as in Adam;  r = rho - 2 * t * beta2**t / (1 - beta2**t) with rho = 2 / (1 - beta2) - 1;
    x <- x - learning_rate * m / (1 - beta1**t) * s in the t-th update of x, where s is 1 up to r = 5, then sqrt((r - 4)
    * (r - 2) * rho / ((rho - 4) * (rho - 2) * r) * (1 - beta2**t)) / (sqrt(v) + eps) (L. Liu et al., 2020;
    torch.optim.RAdam).

    decoupled: as in Adam.  parameters, learning_rate, master_weights: see Optimizer; betas: see Adam.
    """

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, betas: Betas = BETAS, eps: float = 1e-8,
        weight_decay: float = 0.0, decoupled: bool = False, *, master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, decoupled=decoupled,
                         master_weights=master_weights)  # fmt: skip

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        numbers = super().numbers(group, values, count)
        longest = 2 / (1 - values["beta2"]) - 1
        length = longest - 2 * count * values["beta2"] ** count / numbers["correction2"]
        rectified = length > 5
        r, rho = where(rectified, length, 6.0), where(rectified, longest, 6.0)  # no root of negative numbers
        rectification = (r - 4) * (r - 2) * rho / ((rho - 4) * (rho - 2) * r) * numbers["correction2"]
        rate = values["learning_rate"] / numbers["correction1"]
        adaptive = where(rectified, rate * rectification**0.5, 0.0)
        return {**numbers, "adaptive_rate": adaptive, "plain_rate": where(rectified, 0.0, rate)}

    def change(self, g: Tensor, m: Tensor, v: Tensor, state: State, n: Any) -> tuple[Any, State]:
        return m * (n.adaptive_rate / (meta.sqrt(v) + n.eps) + n.plain_rate), {}
