"""Adafactor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import significand_bits
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, value_text
from meta.optim.formula import FormulaOptimizer, State
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import where


class Adafactor(FormulaOptimizer):
    """v <- v + (dx**2 - v) * t**beta2_decay;  u = dx / sqrt(max(v, eps1**2));  x <- x * (1 - learning_rate *
    weight_decay) - max(eps2, rms(x)) * min(learning_rate, 1 / sqrt(t)) * u / max(1, rms(u) / d) in the t-th update of
    x, with root mean squares of the whole parameter (N. Shazeer and M. Stern, 2018; torch.optim.Adafactor).

    Of a parameter with two axes or more, only the means of v over the last axis (`row`) and over the one before it
    (`column`) are kept; v is their product divided by the mean of `row`, which is at least eps1.
    beta2_decay: 0 or less.  eps: (eps1, eps2); None for the machine epsilon of the dtype that is computed in.
    d: the bound of rms(u).
    parameters, learning_rate, master_weights: see Optimizer.
    """

    counts_updates = True
    reads_whole_parameters = True

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        master_weights: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(eps, tuple) or len(eps) != 2:
            raise ArgumentError("Adafactor", f"eps is {value_text(eps)}", "the pair eps1, eps2")
        smallest = {} if eps[0] is None else {"eps1": eps[0]}
        super().__init__(parameters, learning_rate, beta2_decay=beta2_decay, eps2=eps[1], d=d,
                         weight_decay=weight_decay, master_weights=master_weights, **smallest)  # fmt: skip

    def slots_of(self, group: ParamGroup, x: NDArray) -> tuple[str, ...]:
        return ("row", "column") if x.ndim > 1 else ("square_mean",)

    def initial_slot(self, slot: str, x: NDArray, dtype: str) -> NDArray:
        shapes = {"row": (*x.shape[:-1], 1), "column": (*x.shape[:-2], 1, *x.shape[-1:]), "square_mean": x.shape}
        return meta.zeros(shapes[slot], dtype, x.device)

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        updates = count.cast("float64") if isinstance(count, Tensor) else count
        largest, rate = updates**-0.5, values["learning_rate"]
        weight = updates ** values["beta2_decay"]
        numbers = super().numbers(group, values, count)
        return {**numbers, "rate": where(rate < largest, rate, largest), "weight": weight}

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        smallest = n.eps1 if "eps1" in self._defaults else 2.0 ** (1 - significand_bits(x.dtype))
        size = meta.maximum(n.eps2, _rms(x))
        changed: dict[str, Any] = {}
        for slot, axis in (("row", -1), ("column", -2), ("square_mean", None)):
            if slot in state:
                new = g * g if axis is None else meta.mean(g * g, axis=axis, keepdims=True)
                changed[slot] = state[slot] + n.weight * (new - state[slot])
        if "row" in changed:
            mean = meta.maximum(meta.mean(changed["row"], axis=-2, keepdims=True), smallest)
            variance = changed["row"] * changed["column"] / mean
        else:
            variance = changed["square_mean"]
        step = g * meta.rsqrt(meta.maximum(variance, smallest * smallest))
        return n.shrink * x - size * n.rate / meta.maximum(_rms(step) / n.d, 1.0) * step, changed


def _rms(x: Tensor) -> Any:
    return meta.sqrt(meta.mean(x * x))
