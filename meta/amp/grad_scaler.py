"""Loss scaling for float16 (P. Micikevicius et al., "Mixed Precision Training", 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import meta
from meta.autograd.api import no_grad
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError


class Steppable(Protocol):
    """An optimizer: it has parameters, and `step` reads their `.grad`."""

    @property
    def parameters(self) -> Sequence[NDArray]: ...

    def step(self) -> None: ...


class GradScaler:
    """Scales the loss so that small float16 gradients do not vanish, and skips steps whose gradients overflow.

        scaler.scale(loss).backward()
        scaler.step(optimizer)

    scale: the initial factor.  growth: multiplies the factor after `interval` finite steps in a row.
    backoff: multiplies it after an overflow.
    Raises ArgumentError unless scale > 0, growth >= 1, 0 < backoff < 1, interval >= 1.
    """

    def __init__(self, scale: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000) -> None:
        if scale <= 0 or growth < 1 or not 0 < backoff < 1 or interval < 1:
            raise ArgumentError(
                "GradScaler",
                f"scale={scale}, growth={growth}, backoff={backoff}, interval={interval}",
                "scale > 0, growth >= 1, 0 < backoff < 1, interval >= 1",
            )
        self.factor = float(scale)
        self.growth = float(growth)
        self.backoff = float(backoff)
        self.interval = int(interval)
        self.good_steps = 0
        self._unscaled: dict[int, bool] = {}
        """id(optimizer) -> whether its unscaled gradients are finite."""

    def scale(self, loss: Any) -> Any:
        """The loss times the current factor."""
        return loss * self.factor

    def unscale(self, optimizer: Steppable) -> bool:
        """Divide the gradients by the factor, for example to clip them before `step`. Returns whether all are finite.

        Raises ArgumentError when called twice before `step`."""
        if id(optimizer) in self._unscaled:
            raise ArgumentError("GradScaler", "unscale is called twice", "once before each step")
        gradients = [(x, x.grad) for x in optimizer.parameters if x.grad is not None]
        with no_grad():
            for x, g in gradients:
                x.grad = g * (1.0 / self.factor)
            finite = _all_finite([x.grad for x, _ in gradients if x.grad is not None])
        self._unscaled[id(optimizer)] = finite
        return finite

    def step(self, optimizer: Steppable) -> bool:
        """Unscale the gradients (unless `unscale` did), update if all of them are finite, and adapt the factor. Returns
        whether the parameters were updated."""
        if id(optimizer) not in self._unscaled:
            self.unscale(optimizer)
        finite = self._unscaled.pop(id(optimizer))
        if finite:
            optimizer.step()
        self._adapt(finite)
        return finite

    def state_dict(self) -> dict[str, float | int]:
        """The state to save with a checkpoint."""
        return {"factor": self.factor, "good_steps": self.good_steps}

    def load_state_dict(self, state: Mapping[str, float | int]) -> None:
        """Restore a saved state. Raises ArgumentError unless it has exactly the entries of `state_dict`."""
        if set(state) != {"factor", "good_steps"}:
            raise ArgumentError("GradScaler", f"the state has {sorted(state)}", "factor and good_steps")
        self.factor, self.good_steps = float(state["factor"]), int(state["good_steps"])

    def _adapt(self, finite: bool) -> None:
        if not finite:
            self.factor *= self.backoff
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.factor *= self.growth
            self.good_steps = 0


def _all_finite(arrays: Sequence[NDArray]) -> bool:
    """Whether all arrays are finite; one result for all of them waits for the device once."""
    if not arrays:
        return True
    flags = [meta.all(meta.isfinite(x)) for x in arrays]
    return bool(meta.all(meta.stack(flags)).item())
