"""Loss scaling for float16 (Micikevicius et al. 2018)."""

from __future__ import annotations

from typing import Any

import meta
from meta.ndarray import NDArray
from meta.optim.optimizer import Optimizer


class GradScaler:
    """Scales the loss so that small float16 gradients do not vanish, and skips steps whose gradients overflow.

        loss = scaler.scale(model(x)); loss.backward(); scaler.step(optimizer)

    scale: the present factor.  growth: factor after `interval` good steps.  backoff: factor after an overflow.
    """

    def __init__(
        self, scale: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000
    ) -> None:
        self.factor = float(scale)
        self.growth = growth
        self.backoff = backoff
        self.interval = interval
        self.good_steps = 0

    def scale(self, loss: Any) -> Any:
        """The loss times the present factor."""
        return loss * self.factor

    def step(self, optimizer: Optimizer) -> bool:
        """Unscale the gradients and update, or skip the update when one is not finite; then adapt the factor.

        Returns whether the update was made."""
        gradients = [(x, x.grad) for x in optimizer.parameters if x.grad is not None]
        finite = all(_all_finite(g) for _, g in gradients)
        if finite:
            for x, g in gradients:
                x.grad = g * (1.0 / self.factor)
            optimizer.step()
        self._adapt(finite)
        return finite

    def _adapt(self, finite: bool) -> None:
        if not finite:
            self.factor *= self.backoff
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps % self.interval == 0:
            self.factor *= self.growth


def _all_finite(x: NDArray) -> bool:
    return bool(meta.all(meta.isfinite(x)).item())
