"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import meta
from meta.optim.formula import FormulaOptimizer
from meta.optim.group import Parameters, ParamGroup
from meta.optim.number import StateNumber, as_array
from meta.optim.optimizer import Updated

Betas: TypeAlias = "tuple[float, float]"
BETAS: Final = (0.9, 0.999)


class Moments(FormulaOptimizer):
    """Base class of optimizers with running means of the gradient, `m`, and of its square, `v`."""

    counts_updates = True

    def __init__(
        self, parameters: Parameters, learning_rate: float, betas: Betas, eps: float, weight_decay: float,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas=betas, eps=eps, weight_decay=weight_decay, **options)

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("m", "v")

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        """Also correction1 = 1 - beta1**t and correction2 = 1 - beta2**t of the t-th update."""
        return {**super().numbers(group, values, count), **self.corrections(values, count)}

    def corrections(self, values: Mapping[str, Any], count: Any) -> dict[str, Any]:
        return {f"correction{i}": 1 - values[f"beta{i}"] ** count for i in (1, 2)}


class Adam(Moments):
    """m <- beta1 * m + (1 - beta1) * g;  v <- beta2 * v + (1 - beta2) * g**2, with g = dx + weight_decay * x;
    x <- x - learning_rate * (m / (1 - beta1**t)) / (sqrt(v / (1 - beta2**t)) + eps) in the t-th update of x
    (D. Kingma and J. Ba, 2015; torch.optim.Adam).

    betas: (beta1, beta2), each from 0 to below 1.
    amsgrad: divide by the largest v so far (S. Reddi et al., 2018), which is a third array for each parameter.
    decoupled: shrink x by the factor 1 - learning_rate * weight_decay, and let g be dx (I. Loshchilov and F. Hutter,
    2019); the default of AdamW.
    parameters, learning_rate, master_weights: see Optimizer.
    """

    flags = ("amsgrad", "decoupled")

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, betas: Betas = BETAS, eps: float = 1e-8,
        weight_decay: float = 0.0, *, amsgrad: bool = False, decoupled: bool = False, master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, amsgrad=amsgrad, decoupled=decoupled,
                         master_weights=master_weights)  # fmt: skip

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return (*super().slot_names(group), *("v_max",) * group["amsgrad"])

    def update_group(self, group: ParamGroup, count: StateNumber | None, updated: Sequence[Updated]) -> None:
        # rate * (m / c1) / (sqrt(v / c2) + eps) is rate * root / c1 * m / (sqrt(v) + eps * root), where root = sqrt(c2)
        assert count is not None
        values = self.values_of(group)
        rate, beta1, beta2, eps, decay = values.values()
        correction, square_correction = self.corrections(values, count.operand).values()
        root = square_correction**0.5
        step_size, eps = rate * root / correction, eps * root
        if group["decoupled"]:
            decay = decay * correction / root  # so that step_size * decay is rate * weight_decay
        device = updated[0].x.device
        numbers = [as_array(value, device) for value in (step_size, beta1, beta2, eps, decay)]
        step: Any = meta.amsgrad if group["amsgrad"] else meta.adam
        for name, x, dx in updated:
            states = [self.slots[slot][name] for slot in self.slot_names(group)]
            step(x, dx, *states, None, *numbers, decoupled=group["decoupled"])


class AdamW(Adam):
    """Adam with decoupled weight decay (I. Loshchilov and F. Hutter, 2019; torch.optim.AdamW)."""

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, betas: Betas = BETAS, eps: float = 1e-8,
        weight_decay: float = 0.01, *, amsgrad: bool = False, master_weights: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(parameters, learning_rate, betas, eps, weight_decay, amsgrad=amsgrad, decoupled=True,
                         master_weights=master_weights)  # fmt: skip
