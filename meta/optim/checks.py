"""Names and checks of arguments, which raise ArgumentError."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, Final, TypeVar, cast

from meta import spellings
from meta.errors import ArgumentError, MetaError, value_text
from meta.schema.annotations import check_signature

TORCH_NAMES: Final[Mapping[str, str]] = {
    "lr": "learning_rate", "params": "parameters", "lr_decay": "rate_decay",
    "initial_accumulator_value": "initial_sum", "T_max": "steps", "T_0": "steps", "T_mult": "growth",
    "min_lr": "minimum", "eta_min": "minimum", "total_iters": "steps",
    "start_factor": "start", "end_factor": "end", "lr_lambda": "functions", "schedulers": "schedules",
    "max_lr": "highest", "pct_start": "rising", "anneal_strategy": "anneal", "base_momentum": "lowest_momentum",
    "max_momentum": "highest_momentum", "decoupled_weight_decay": "decoupled",
}  # fmt: skip
"""Names that torch gives to arguments of optimizers and schedules -> the names here. Both are accepted."""

_NOT_NEEDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("foreach", "fused", "capturable"), "leave it out: compiled steps fuse the updates"),
    "maximize": "leave it out, and negate the loss",
    "last_epoch": "leave it out: load_state_dict continues a schedule",
}
"""Arguments of torch that have no counterpart, and what to do without them."""

F = TypeVar("F", bound=Callable[..., Any])


class TorchNames:
    """Base of classes whose constructors also take their arguments by torch's names. Raises ArgumentError for unknown
    ones."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        constructor = vars(cls).get("__init__")
        if constructor is not None:
            cls.__init__ = _renaming(constructor)


def own_name(name: str, allowed: Container[str]) -> str:
    """The name of an argument here: one of `allowed` if it is one or torch has it under `name`, else `name`."""
    other = TORCH_NAMES.get(name, name)
    return other if name not in allowed and other in allowed else name


def _renaming(constructor: F) -> F:
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    allowed = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_others = any(p.kind is p.VAR_KEYWORD for p in parameters)

    @wraps(constructor)
    def construct(self: object, *args: Any, **options: Any) -> None:
        subject = type(self).__name__
        named: dict[str, Any] = {}
        for name, value in options.items():
            own = own_name(name, allowed)
            if own in named:
                raise ArgumentError(subject, f"argument '{own}' comes twice", f"one of {own}, {name}")
            if own in _NOT_NEEDED and own not in allowed and not takes_others:
                raise ArgumentError(subject, f"unknown argument '{name}'", ", ".join(allowed), _NOT_NEEDED[own])
            named[own] = value
        if not takes_others:
            spellings.refuse_unknown(subject, named, allowed)
        try:
            constructor(self, *args, **named)
        except TypeError as error:
            if not isinstance(error, MetaError):
                check_signature(subject, constructor, args, named, skipped=1)
            raise

    return cast(F, construct)


def nonnegative(subject: str, name: str, value: object, *, finite: bool = True) -> float:
    """A number, 0 or more."""
    number = _float(value)
    if 0.0 <= number < math.inf or (number == math.inf and not finite):
        return number
    raise ArgumentError(subject, f"{name} is {value_text(value)}", f"a {'finite ' if finite else ''}number, 0 or more")


def nonpositive(subject: str, name: str, value: object) -> float:
    """A finite number, 0 or less."""
    number = _float(value)
    if -math.inf < number <= 0.0:
        return number
    raise ArgumentError(subject, f"{name} is {value_text(value)}", "a finite number, 0 or less")


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
