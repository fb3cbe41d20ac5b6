"""Which choices of a kernel's knobs are tried, and kept: one knob after the other, while that wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from meta.deploy.tuning.kernels import KernelVariant, State
from meta.deploy.tuning.timing import Measure
from meta.records import record

WIN: Final = 0.97
"""The time of a change that is kept, at most, as a part of the time without it."""
_ROUNDS: Final = 5
"""Rounds in which the values of a knob alternate. The best of them then alternates with the old one in as many more,
because the least of several uncertain times is too small."""


class Tunable(Protocol):
    """A kernel that can have other choices."""

    def variant(self, state: State) -> KernelVariant | None: ...


@record
class Found:
    """The best variant of a kernel, and the seconds of a call. finished: whether no further change of one knob wins, as
    opposed to an end of the time."""

    variant: KernelVariant
    seconds: float
    finished: bool


def tune_kernel(
    kernel: Tunable, first: KernelVariant, seconds: float, measure: Measure, is_late: Callable[[], bool],
    fixed: frozenset[str] = frozenset(),
) -> Found:  # fmt: skip
    """Change one knob at a time, and keep what wins by 3 %, until nothing does.

    first: the variant to begin with, and `seconds`, its time.  is_late: whether the time is over.
    fixed: the keys of computes that another kernel has chosen for."""
    best, finished = first, False
    while not finished:
        finished = True
        for place in [p for p in best.knobs if p[0] not in fixed]:
            if is_late():
                return Found(best, seconds, finished=False)
            if place in best.knobs and (better := _best_value(kernel, best, place, measure)) is not None:
                best, seconds, finished = better[0], seconds * better[1], False
    return Found(best, seconds, finished=True)


def _best_value(
    kernel: Tunable, best: KernelVariant, place: tuple[str, str], measure: Measure
) -> tuple[KernelVariant, float] | None:
    """The variant with another value of a knob that wins, and the part of the time that it takes; None without one."""
    others = {best.code: best}
    for state in best.neighbours(place):
        variant = kernel.variant(state)
        if variant is not None:
            others.setdefault(variant.code, variant)
    variants = list(others.values())
    if len(variants) == 1:
        return None
    times = measure(variants, _ROUNDS)
    fastest = min(range(1, len(variants)), key=times.__getitem__)
    if times[fastest] > WIN * times[0]:
        return None
    old, new = measure([best, variants[fastest]], 2 * _ROUNDS)
    return (variants[fastest], new / old) if new <= WIN * old else None
