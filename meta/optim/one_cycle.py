"""The one-cycle schedule."""

from __future__ import annotations

import math
from typing import Any, Literal

from meta.errors import ArgumentError, value_text
from meta.optim.checks import nonnegative, positive, whole
from meta.optim.number import where
from meta.optim.optimizer import Optimizer
from meta.optim.schedule import Schedule, cos

_Phase = tuple[float, float, float]
"""The last count of a phase, and the values at its ends."""


class OneCycleLR(Schedule):
    """From highest / div_factor up to `highest` and down to highest / (div_factor * final_div_factor), while the
    momentum goes the other way (L. Smith and N. Topin, 2019; torch's form).

    highest: the largest learning rate, a number or a list with one for each group.  total_steps: the length of the
    cycle; the rate stays at the end.  rising: the share of steps in which the rate rises.
    anneal: "cos" or "linear".  cycle_momentum: move `momentum`, or the `beta1` of Adam, between highest_momentum (at
    the ends) and lowest_momentum.
    three_phase: fall to the first rate in as many steps as the rate rose, then to the last one.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        highest: float | list[float],
        total_steps: int,
        rising: float = 0.3,
        anneal: Literal["cos", "linear"] = "cos",
        *,
        cycle_momentum: bool = True,
        lowest_momentum: float = 0.85,
        highest_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        steps = whole("OneCycleLR", "total_steps", total_steps)
        if nonnegative("OneCycleLR", "rising", rising) > 1:
            raise ArgumentError("OneCycleLR", f"rising is {value_text(rising)}", "a number from 0 to 1")
        if anneal not in ("cos", "linear"):
            raise ArgumentError("OneCycleLR", f"anneal is {value_text(anneal)}", '"cos" or "linear"')
        groups = len(optimizer.param_groups)
        values = highest if isinstance(highest, list) else [highest] * groups
        listed = [positive("OneCycleLR", "highest", value) for value in values]
        if len(listed) != groups:
            raise ArgumentError("OneCycleLR", f"{len(listed)} values of highest for {groups} groups", "one for each")
        div = positive("OneCycleLR", "div_factor", div_factor)
        final_div = positive("OneCycleLR", "final_div_factor", final_div_factor)
        self.anneal = anneal
        self._rates = [
            _phases(steps, rising, value / div, value, value / div / final_div, three_phase) for value in listed
        ]
        low, high = (positive("OneCycleLR", "momentum", value) for value in (lowest_momentum, highest_momentum))
        self._momenta = _phases(steps, rising, high, low, high, three_phase)
        self._cycled = ""
        if cycle_momentum:
            self._cycled = next((n for n in ("momentum", "beta1") if n in optimizer.param_groups[0]), "")
            if not self._cycled:
                problem = f"{type(optimizer).__name__} has neither momentum nor beta1"
                raise ArgumentError("OneCycleLR", problem, "an optimizer with momentum", "cycle_momentum=False")
        super().__init__(optimizer)

    def apply(self, count: object) -> None:
        super().apply(count)
        if self._cycled:
            momentum = self._value(self._momenta, count)
            for group in self.optimizer.param_groups:
                group.numbers[self._cycled].assign(momentum)

    def group_rate(self, count: object, base: object, group: int) -> Any:
        return self._value(self._rates[group], count)

    def _value(self, phases: list[_Phase], count: Any) -> Any:
        value: Any = phases[-1][2]
        starts = [0.0, *(end for end, _, _ in phases)]
        for start, (end, first, last) in reversed(list(zip(starts, phases, strict=False))):
            share = (count - start) / (end - start) if end > start else 1.0
            between = first + (last - first) * (share if self.anneal == "linear" else (1 - cos(share * math.pi)) / 2)
            value = where(count <= end, between, value)
        return value


def _phases(steps: int, rising: float, first: float, highest: float, last: float, three: bool) -> list[_Phase]:
    peak = rising * steps - 1
    if three:
        return [(peak, first, highest), (2 * peak, highest, first), (steps - 1.0, first, last)]
    return [(peak, first, highest), (steps - 1.0, highest, last)]
