"""Muon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError, value_text
from meta.optim.checks import whole
from meta.optim.formula import FormulaOptimizer, State
from meta.optim.group import Parameters, ParamGroup

_RATES: Final = ("original", "match_rms_adamw")


class Muon(FormulaOptimizer):
    """m <- momentum * m + (1 - momentum) * dx;  x <- x * (1 - learning_rate * weight_decay) - learning_rate * s *
    orthogonal(m) for matrices (K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024;
    torch.optim.Muon).

    orthogonal(m) has the singular vectors of m, and singular values near 1: `ns_steps` times a * m + (b * g + c * g
    @ g) @ m, where g is m times its transpose and ns_coefficients is (a, b, c) (the iteration of Newton and Schulz).
    nesterov: step along momentum * m + (1 - momentum) * dx.
    adjust_lr_fn: s for a matrix of r rows and c columns: "original", or None, is sqrt(max(1, r / c)),
        "match_rms_adamw" 0.2 * sqrt(max(r, c)).
    precision: the dtype of the iteration.
    Vectors, embeddings and the last layer take another optimizer, such as AdamW.
    parameters, learning_rate, master_weights: see Optimizer.
    """

    flags = ("nesterov",)
    reads_whole_parameters = True

    def __init__(
        self, parameters: Parameters, learning_rate: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: Literal["original", "match_rms_adamw"] | None = None, *,
        precision: str = "bfloat16", master_weights: bool = False,
    ) -> None:  # fmt: skip
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATES:
            raise ArgumentError("Muon", f"adjust_lr_fn is {value_text(adjust_lr_fn)}", f"None, {', '.join(_RATES)}")
        if len(ns_coefficients) != 3:
            raise ArgumentError("Muon", f"ns_coefficients is {value_text(ns_coefficients)}", "three numbers")
        self._coefficients = tuple(map(float, ns_coefficients))
        self._steps = whole("Muon", "ns_steps", ns_steps)
        self._adjustment = adjust_lr_fn or "original"
        self._precision = precision
        super().__init__(parameters, learning_rate, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                         eps=eps, master_weights=master_weights)  # fmt: skip

    def check_group(self, group: ParamGroup) -> None:
        for name, x in group.named:
            if x.ndim != 2:
                raise ArgumentError("Muon", f"'{name}' has shape {x.shape}", "matrices", "train it with AdamW")

    def slot_names(self, group: ParamGroup) -> tuple[str, ...]:
        return ("m",)

    def numbers(self, group: ParamGroup, values: Mapping[str, Any], count: Any) -> Mapping[str, Any]:
        momentum = values["momentum"]
        look_ahead = (1 - momentum, momentum) if group["nesterov"] else (0.0, 1.0)
        numbers = super().numbers(group, values, count)
        return {**numbers, "rest": 1 - momentum, "share_g": look_ahead[0], "share_m": look_ahead[1]}

    def formula(self, x: Tensor, g: Tensor, state: State, n: Any) -> tuple[Any, State]:
        m = n.momentum * state["m"] + n.rest * g
        step = self._orthogonal(n.share_g * g + n.share_m * m, n).cast(x.dtype)
        rows, columns = x.shape
        scale = max(1, rows / columns) if self._adjustment == "original" else 0.04 * max(rows, columns)
        return n.shrink * x - (n.learning_rate * scale**0.5) * step, {"m": m}

    def _orthogonal(self, matrix: Any, n: Any) -> Any:
        """Newton-Schulz on the wide side: at most as many rows as columns."""
        a, b, c = self._coefficients
        is_tall = matrix.shape[0] > matrix.shape[1]
        step = (matrix.T if is_tall else matrix).cast(self._precision)
        length = meta.sqrt(meta.sum(step.cast(matrix.dtype) ** 2))
        step = (step / meta.maximum(length, n.eps).cast(self._precision)).cast(self._precision)
        for _ in range(self._steps):
            gram = meta.matmul(step, step.T)
            step = a * step + meta.matmul(b * gram + c * meta.matmul(gram, gram), step)
        return step.T if is_tall else step
