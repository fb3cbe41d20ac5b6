"""Loss scaling for float16 (P. Micikevicius et al., "Mixed Precision Training", 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import meta
from meta import tracing
from meta.device import Device
from meta.eager.ndarray import NDArray, array, move_in_place
from meta.errors import ArgumentError
from meta.modes import modes, no_grad
from meta.schema.annotations import CheckedArguments
from meta.tracing.symbol import exact

_STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
_SKIPPED = "skipped_steps"
"""The entry of a state that torch's scalers lack."""


class Steppable(Protocol):
    """An optimizer: it has parameters, and `step` reads their `.grad`."""

    @property
    def parameters(self) -> Sequence[NDArray]: ...

    def step(self) -> None: ...


class GradScaler(CheckedArguments):
    """Scales the loss so that small float16 gradients do not vanish, and skips steps whose gradients overflow.

        scaler.scale(loss).backward()
        scaler.step(optimizer)

    scale: the initial factor.  growth: multiplies the factor after `interval` finite steps in a row.
    backoff: multiplies it after an overflow.
    The factor (float32) and the numbers of finite and of skipped steps (int32) are 0-d arrays, which a traced step
    updates like the state of an optimizer. In a traced function a skipped step selects the old values, so that nothing
    waits for the device.
    Raises ArgumentError unless scale > 0, growth >= 1, 0 < backoff < 1, interval >= 1.
    """

    def __init__(self, scale: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000) -> None:
        _check(scale, growth, backoff, interval)
        self.growth = float(growth)
        self.backoff = float(backoff)
        self.interval = int(interval)
        self._factor = array(float(scale), dtype="float32")
        self._good_steps = array(0, dtype="int32")
        self._skipped_steps = array(0, dtype="int32")
        self._unscaled: dict[int, tuple[Any, Any]] = {}
        """id(optimizer) -> the trace in which its gradients were unscaled, if any, and whether they are finite."""

    def __setattr__(self, name: str, value: object) -> None:
        """Growth, backoff and interval are constants of traced programs; a new value invalidates these programs."""
        if name in ("growth", "backoff", "interval") and self.__dict__.get(name, value) != value:
            tracing.invalidate()
        object.__setattr__(self, name, value)

    @property
    def factor(self) -> float:
        """The current factor; reading it waits for the device."""
        return float(self._factor.item())

    @factor.setter
    def factor(self, value: float) -> None:
        self._factor.update(array(float(value), dtype="float32", device=self._factor.device))

    @property
    def good_steps(self) -> int:
        """The number of finite steps since the factor changed; reading it waits for the device."""
        return int(self._good_steps.item())

    @property
    def skipped_steps(self) -> int:
        """The number of steps that were skipped so far, because a gradient was infinite or NaN; reading it waits for
        the device."""
        return int(self._skipped_steps.item())

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the state, with names."""
        yield "factor", self._factor
        yield "good_steps", self._good_steps
        yield "skipped_steps", self._skipped_steps

    def scale(self, loss: Any) -> Any:
        """The loss times the current factor."""
        self._move_to(loss.device)
        return loss * self._factor

    def unscale(self, optimizer: Steppable) -> Any:
        """Divide the gradients by the factor, for example to clip them before `step`. Returns whether all are finite, a
        0-d bool tensor.

        Raises ArgumentError when called twice before `step`."""
        if self._finite(optimizer) is not None:
            raise ArgumentError("GradScaler", "unscale is called twice", "once before each step")
        parameters = optimizer.parameters
        gradients: list[Any] = [(x, x.grad) for x in parameters if x.grad is not None]
        if gradients:
            self._move_to(gradients[0][1].device)
        with no_grad():
            inverse = 1.0 / self._factor
            for x, g in gradients:
                unscaled = exact(g) * inverse
                x.grad = unscaled if unscaled.dtype == g.dtype else unscaled.cast(g.dtype)
            finite = _all_finite([x.grad for x, _ in gradients], self._factor.device)
        self._unscaled[id(optimizer)] = modes.trace, finite
        return finite

    def step(self, optimizer: Steppable) -> Any:
        """Unscale the gradients (unless `unscale` did), update if all of them are finite, and adapt the factor. Returns
        whether the parameters were updated, a 0-d bool tensor; `skipped_steps` counts how often they were not."""
        finite = self._finite(optimizer)
        if finite is None:
            finite = self.unscale(optimizer)
        del self._unscaled[id(optimizer)]
        if modes.trace is not None:
            modes.trace.write_where(finite, optimizer.step)
        elif finite:
            optimizer.step()
        with no_grad():
            self._adapt(finite)
        return finite

    def state_dict(self) -> dict[str, float | int]:
        """The state to save with a checkpoint: the entries of torch.amp.GradScaler, and "skipped_steps"."""
        values = (self.factor, self.growth, self.backoff, self.interval, self.good_steps)
        return {**dict(zip(_STATE, values, strict=True)), _SKIPPED: self.skipped_steps}

    def load_state_dict(self, state: Mapping[str, float | int]) -> None:
        """Restore a saved state. Raises ArgumentError unless it has exactly the entries of `state_dict` (torch's states
        lack "skipped_steps"), with values that the constructor takes."""
        if set(state) - {_SKIPPED} != set(_STATE):
            raise ArgumentError("GradScaler", f"the state has {sorted(state)}", ", ".join(_STATE))
        scale, growth, backoff, interval, good_steps = (state[name] for name in _STATE)
        _check(scale, growth, backoff, interval)
        self.factor = scale
        self.growth, self.backoff, self.interval = float(growth), float(backoff), int(interval)
        for count, value in ((self._good_steps, good_steps), (self._skipped_steps, state.get(_SKIPPED, 0))):
            count.update(array(int(value), dtype="int32", device=count.device))

    def _finite(self, optimizer: Steppable) -> Any:
        """Whether the unscaled gradients of an optimizer are finite; None before `unscale`. The mark of an
        unfinished trace does not count."""
        trace, finite = self._unscaled.get(id(optimizer), (None, None))
        return finite if trace is modes.trace else None

    def _move_to(self, device: Device) -> None:
        for _, x in self.named_state():
            if x.device != device:
                move_in_place(x, device)

    def _adapt(self, finite: Any) -> None:
        """The next factor and numbers of steps. A factor that would overflow does not grow."""
        steps = self._good_steps + 1
        full = steps >= self.interval
        larger = self._factor * self.growth
        grown = meta.where(meta.logical_and(full, meta.isfinite(larger)), larger, self._factor)
        self._factor.update(meta.where(finite, grown, self._factor * self.backoff))
        self._good_steps.update(meta.where(meta.logical_and(finite, meta.logical_not(full)), steps, 0))
        self._skipped_steps.update(self._skipped_steps + meta.logical_not(finite).cast("int32"))


def _check(scale: float, growth: float, backoff: float, interval: float) -> None:
    if scale <= 0 or growth < 1 or not 0 < backoff < 1 or interval < 1:
        raise ArgumentError(
            "GradScaler",
            f"scale={scale}, growth={growth}, backoff={backoff}, interval={interval}",
            "scale > 0, growth >= 1, 0 < backoff < 1, interval >= 1",
        )


def _all_finite(tensors: Sequence[Any], device: Device) -> Any:
    """Whether all tensors are finite, as one 0-d bool tensor."""
    if not tensors:
        return meta.full((), True, dtype="bool", device=device)
    return meta.all(meta.stack([meta.all(meta.isfinite(x)) for x in tensors]))
