"""Learning rates that fall when a metric stops improving."""

from __future__ import annotations

import math
from typing import Any, Literal

from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.optim.checks import below_one, nonnegative
from meta.optim.number import StateNumber, where
from meta.optim.optimizer import Optimizer
from meta.optim.schedule import Schedule


class ReduceLROnPlateau(Schedule):
    """Multiply the rates by `factor` when a metric has not improved for more than `patience` calls of
    `schedule.step(metric)`, such as the validation loss after each epoch (torch's form).

    mode: "min" or "max", what is better.  factor: below 1.  threshold: the improvement that counts, relative to the
    best value so far or, with threshold_mode "abs", in its units.  cooldown: calls after a reduction that do not count.
    minimum: the smallest rate.  eps: reductions by less are left out.
    It is stepped outside of a TrainStep, or in a traced function of your own.
    """

    takes_metric = True

    def __init__(
        self, optimizer: Optimizer, mode: Literal["min", "max"] = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: Literal["rel", "abs"] = "rel", cooldown: int = 0,
        minimum: float = 0.0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self._sign = 1.0 if mode == "min" else -1.0
        self.factor = below_one("ReduceLROnPlateau", "factor", factor)
        self.patience = nonnegative("ReduceLROnPlateau", "patience", patience)
        self.threshold = nonnegative("ReduceLROnPlateau", "threshold", threshold)
        self.cooldown = nonnegative("ReduceLROnPlateau", "cooldown", cooldown)
        self.minimum = nonnegative("ReduceLROnPlateau", "minimum", minimum)
        self.eps = nonnegative("ReduceLROnPlateau", "eps", eps)
        self._is_relative = threshold_mode == "rel"
        device = optimizer.parameters[0].device
        self._best = StateNumber(self._sign * math.inf, "float64", device)
        self._bad = StateNumber(0, "int64", device)
        self._waiting = StateNumber(0, "int64", device)
        super().__init__(optimizer)

    def numbers(self) -> dict[str, StateNumber]:
        return {**super().numbers(), "best": self._best, "bad": self._bad, "waiting": self._waiting}

    def apply(self, count: object) -> None:
        """Rates do not follow from the count."""

    def step(self, metric: Any = None) -> None:
        """Take the metric of a call, a number or a tensor of one element, and reduce the rates if it is time."""
        if metric is None:
            raise ArgumentError("ReduceLROnPlateau", "step() without a metric", "step(metric)", "pass the loss")
        if isinstance(metric, NDArray):
            metric = metric.item()
        elif not isinstance(metric, (int, float)):
            metric = metric.reshape(()).cast("float64")
        self.count_step()
        is_better = self._sign * metric < self._sign * self._bound()
        bad = where(is_better, 0, self._bad.operand + 1)
        self._best.assign(where(is_better, metric, self._best.operand))
        is_waiting = self._waiting.operand > 0
        waiting = where(is_waiting, self._waiting.operand - 1, 0)
        bad = where(is_waiting, 0, bad)
        is_due = bad > self.patience
        for group in self.optimizer.param_groups:
            number = group.numbers["learning_rate"]
            smaller = number.operand * self.factor
            smaller = where(smaller < self.minimum, self.minimum, smaller)
            is_less = number.operand - smaller > self.eps
            number.assign(where(is_due, where(is_less, smaller, number.operand), number.operand))
        self._waiting.assign(where(is_due, self.cooldown, waiting))
        self._bad.assign(where(is_due, 0, bad))

    def _bound(self) -> Any:
        """What a better metric is beyond."""
        best = self._best.operand
        if not self._is_relative:
            return best - self._sign * self.threshold
        return best * (1 - self._sign * self.threshold)
