"""Checks of arguments, which raise ArgumentError."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Final

from meta.errors import ArgumentError, did_you_mean

_TORCH_NAMES: Final[Mapping[str, str]] = {
    "lr": "learning_rate", "params": "parameters", "lr_decay": "rate_decay",
    "initial_accumulator_value": "initial_sum", "T_max": "steps", "eta_min": "minimum", "total_iters": "steps",
    "start_factor": "start", "end_factor": "end", "lr_lambda": "functions", "schedulers": "schedules",
    "max_lr": "highest", "pct_start": "rising", "anneal_strategy": "anneal", "base_momentum": "lowest_momentum",
    "max_momentum": "highest_momentum",
}  # fmt: skip
"""Names that torch gives to arguments, for error texts."""


def known_names(kind: type, options: Mapping[str, Any]) -> None:
    """Keyword arguments of a constructor: none that it does not have."""
    parameters = inspect.signature(kind.__init__).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    allowed = [name for name in parameters if name != "self"]
    for name in options:
        if name not in allowed:
            other = _TORCH_NAMES.get(name, "")
            hint = f"write {other}=" if other in allowed else did_you_mean(name, allowed)
            raise ArgumentError(kind.__name__, f"unknown argument '{name}'", ", ".join(allowed), hint)


def nonnegative(subject: str, name: str, value: Any, *, finite: bool = True) -> float:
    """A number, 0 or more."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if 0.0 <= number < math.inf or (number == math.inf and not finite):
        return number
    raise ArgumentError(subject, f"{name} is {value!r:.60}", f"a {'finite ' if finite else ''}number, 0 or more")


def positive(subject: str, name: str, value: Any) -> float:
    """A finite number above 0."""
    if nonnegative(subject, name, value) == 0:
        raise ArgumentError(subject, f"{name} is {value!r}", "a finite number above 0")
    return float(value)


def below_one(subject: str, name: str, value: Any) -> float:
    """A number from 0 to below 1."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if 0.0 <= number < 1.0:
        return number
    raise ArgumentError(subject, f"{name} is {value!r:.60}", "a number from 0 to below 1")


def whole(subject: str, name: str, value: Any) -> int:
    """An int, 1 or more."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ArgumentError(subject, f"{name} is {value!r:.60}", "an int, 1 or more")
    return int(value)


def flag(subject: str, name: str, value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise ArgumentError(subject, f"{name} is {value!r:.60}", "True or False")
