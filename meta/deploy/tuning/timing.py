"""Times of variants of a kernel on this machine: on buffers of its own sizes, in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from statistics import median
from typing import Any, Final, Protocol

import numpy as np

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.library import compile_functions, compiling
from meta.backend.tvm.schedule.nest import substitute
from meta.deploy.tuning.kernels import KernelVariant
from meta.dtype import is_float
from meta.eager.seeds import zeros_of
from meta.errors import KernelError
from meta.ir.type import tensor_type

Measure = Callable[[Sequence[KernelVariant], int], Sequence[float]]
"""(variants, rounds) -> seconds of a call of each, the median of the rounds; infinity for those that do not compile."""
_TURN: Final = 1e-3
"""Seconds that a kernel runs in a round, at least."""
_HOPELESS: Final = 1.3
"""Times the fastest, from which on a variant has no further rounds."""


class Clock(Protocol):
    """Seconds since some moment."""

    def __call__(self) -> float: ...


def own_clock() -> Clock:
    """The clock of kernels: of this thread's work where one thread runs them, which other processes disturb little."""
    return time.thread_time if tvm.num_threads() == 1 else time.perf_counter


def alternate(calls: Sequence[Callable[[], object]], rounds: int, clock: Clock) -> list[float]:
    """The median seconds of each call over rounds in which they take turns. Slow ones leave after two rounds."""
    counts = list[int]()
    for call in calls:
        call()
        counts.append(max(1, int(_TURN / max(_turn(call, 1, clock), 1e-9))))
    samples: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        fastest = min((median(s) for s in samples if s), default=0.0)
        for call, count, sample in zip(calls, counts, samples, strict=True):
            if number < 2 or median(sample) <= _HOPELESS * fastest:
                sample.append(_turn(call, count, clock))
    return [median(sample) for sample in samples]


def _turn(call: Callable[[], object], count: int, clock: Clock) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def timer(target: Any, sizes: Mapping[str, int]) -> Measure:
    """Compiles variants, and times them here. sizes: values of symbolic sizes."""

    def measure(variants: Sequence[KernelVariant], rounds: int) -> list[float]:
        calls: dict[int, Callable[[], object]] = {}
        with suppress(KeyError):
            arguments = [_value(x) for x in parameters(variants[0].function, sizes)]
            for i, variant in enumerate(variants):
                with suppress(KernelError), compiling("tune"):
                    calls[i] = partial(compile_functions({_NAME: variant.function}, target)[_NAME], *arguments)
        times = dict(zip(calls, alternate(list(calls.values()), rounds, own_clock()), strict=True))
        return [times.get(i, inf) for i in range(len(variants))]

    return measure


_NAME: Final = "variant"


def _value(parameter: tuple[tuple[int, ...], str] | int) -> Any:
    """A number, or a raw tensor: random floats, or zeros of other dtypes, which are valid positions."""
    if isinstance(parameter, int):
        return parameter
    shape, dtype = parameter
    if not is_float(dtype):
        return zeros_of(tensor_type(shape, dtype))._data
    return meta.array(np.random.default_rng(0).standard_normal(shape).astype("float32")).cast(dtype)._data


def parameters(function: Any, sizes: Mapping[str, int]) -> list[tuple[tuple[int, ...], str] | int]:
    """The shape and dtype of each argument of a kernel, or the number. Raises KeyError for a size without a value."""

    def of(parameter: Any) -> tuple[tuple[int, ...], str] | int:
        if not hasattr(parameter.ty, "shape"):
            return sizes[str(parameter.name)]
        return tuple(_extent(d, sizes) for d in parameter.ty.shape), str(parameter.ty.dtype)

    return [of(p) for p in function.params]


def _extent(value: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(value, (int, tvm.IntImm)):
        return int(value)
    found: list[Any] = []
    tvm.structural_walk(value, (tvm.Var, found.append))
    known = {v: tvm.IntImm("int64", sizes[str(v.name)]) for v in found}
    return int(tvm.Analyzer().simplify(substitute(value, known)))
