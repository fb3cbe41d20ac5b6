"""Checks of arguments, which raise ArgumentError."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from meta.errors import ArgumentError, value_text
from meta.spellings.arguments import refuse_unknown


def known_names(kind: type, options: Mapping[str, Any]) -> None:
    """Keyword arguments of a constructor: none that it does not have."""
    parameters = inspect.signature(kind.__init__).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    allowed = [name for name in parameters if name != "self"]
    refuse_unknown(kind.__name__, options, allowed)


def nonnegative(subject: str, name: str, value: object, *, finite: bool = True) -> float:
    """A number, 0 or more."""
    number = _float(value)
    if 0.0 <= number < math.inf or (number == math.inf and not finite):
        return number
    raise ArgumentError(subject, f"{name} is {value_text(value)}", f"a {'finite ' if finite else ''}number, 0 or more")


def positive(subject: str, name: str, value: Any) -> float:
    """A finite number above 0."""
    if nonnegative(subject, name, value) == 0:
        raise ArgumentError(subject, f"{name} is {value_text(value)}", "a finite number above 0")
    return float(value)


def below_one(subject: str, name: str, value: object) -> float:
    """A number from 0 to below 1."""
    number = _float(value)
    if 0.0 <= number < 1.0:
        return number
    raise ArgumentError(subject, f"{name} is {value_text(value)}", "a number from 0 to below 1")


def whole(subject: str, name: str, value: object) -> int:
    """An int, 1 or more."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) < 2**63:
        raise ArgumentError(subject, f"{name} is {value_text(value)}", "an int, 1 or more")
    return int(value)


def flag(subject: str, name: str, value: object) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise ArgumentError(subject, f"{name} is {value_text(value)}", "True or False")


def _float(value: object) -> float:
    """A number as a float, NaN for other values and for ints that no float holds."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return math.nan
