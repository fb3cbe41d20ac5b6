"""Knobs of kernels: sizes of tiles, orders of loops and the like, which a heuristic chooses and tuning may change.

A schedule, or a compute that decides how it is scheduled, asks for a value where its constant would be:

    rows = choose("tile_rows", 8, (8, 6, 4))

Outside of tuned programs the answer is the default, and nothing is recorded. A tuned program has `KnobChoices` in the
mode `meta.modes.modes.tuning`. While one of its kernels is computed or scheduled, the mode `knobs` has its `Knobs`. A
choice that is not among the options, such as one that another version of the schedule offered, is ignored.
Choices are a part of the identity of compiled code, see `meta.backend.tvm.target.identity`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from meta.modes import modes, scoped
from meta.records import record

Value: TypeAlias = "bool | int | tuple[int, ...]"
"""What a knob is set to."""
V = TypeVar("V", bound="bool | int | tuple[int, ...]")


@record
class Knob:
    """A question of a schedule. options: the allowed values, the most promising first."""

    name: str
    default: Value
    options: tuple[Value, ...]


class Knobs:
    """The knobs of one kernel. chosen: values by name.  asked: the knobs that it has asked for, in order.  used: the
    values that they have."""

    def __init__(self, chosen: Mapping[str, Value]) -> None:
        self.chosen = chosen
        self.asked: dict[str, Knob] = {}
        self.used: dict[str, Value] = {}

    def choose(self, name: str, default: Value, options: Sequence[Value]) -> Value:
        """The chosen value. A name that is asked for again, for another block, gets a number."""
        count = sum(each.partition(".")[0] == name for each in self.asked)
        name = f"{name}.{count}" if count else name
        self.asked[name] = Knob(name, default, tuple(options))
        value = self.chosen.get(name, default)
        self.used[name] = value if any(_same(value, option) for option in options) else default
        return self.used[name]


def choose(name: str, default: V, options: Sequence[V]) -> V:
    """The value of a knob of the kernel that this thread computes or schedules.

    options: the allowed values; each gives a correct kernel."""
    knobs: Knobs | None = modes.knobs
    if knobs is None:
        return default
    value = knobs.choose(name, default, options)
    return next((option for option in options if _same(option, value)), default)


def choose_divisor(name: str, default: int, extent: int) -> int:
    """A knob: how many of `extent` tiles or images make a block, all powers of two and the extent that divide it."""
    sizes = {default, extent, *(1 << n for n in range(extent.bit_length()))}
    return choose(name, default, [n for n in sorted(sizes) if n and extent % n == 0])


def _same(a: Value, b: Value) -> bool:
    return type(a) is type(b) and a == b


@contextmanager
def tentative() -> Generator[Callable[[], None], None, None]:
    """A block that may not apply: unless it calls what it receives, the questions asked inside of it are withdrawn."""
    knobs: Knobs | None = modes.knobs
    before = None if knobs is None else (dict(knobs.asked), dict(knobs.used))
    kept: list[bool] = []
    try:
        yield lambda: kept.append(True)
    finally:
        if knobs is not None and before is not None and not kept:
            knobs.asked, knobs.used = before


@record
class KnobChoices:
    """The choices of tuning for one target, by the key of a kernel and the name of a knob."""

    kernels: Mapping[str, Mapping[str, Value]]

    @property
    def digest(self) -> str:
        """A hash of the choices, which tells the code compiled with them apart from other code."""
        return hashlib.sha256(json.dumps(self.kernels, sort_keys=True).encode()).hexdigest()[:32]

    def merged(self, other: KnobChoices | None) -> KnobChoices:
        """These choices, completed by the choices of `other` for further kernels."""
        return self if other is None else KnobChoices({**other.kernels, **self.kernels})


@contextmanager
def knobs_of(key: Callable[[], str]) -> Generator[None, None, None]:
    """Compute or schedule one kernel inside the block, with the choices of the program. key: returns the kernel's."""
    tuning: KnobChoices | None = modes.tuning
    if tuning is None:
        yield
        return
    with scoped(knobs=Knobs(tuning.kernels.get(key(), {}))):
        yield
