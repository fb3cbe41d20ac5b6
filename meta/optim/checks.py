"""Checks of arguments, which raise ArgumentError."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from meta.errors import ArgumentError


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
