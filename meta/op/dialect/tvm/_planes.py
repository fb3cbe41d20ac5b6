"""Loops over the planes of a tensor (images of one channel) on a CPU, written with vectors: what the loops of gradients
of max pooling are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

from meta.backend.tvm import target as targets
from meta.backend.tvm.adapter import IntImm, IRBuilder, script_tirx, te, tirx
from meta.backend.tvm.schedule.cpu.elementwise import PARALLEL_WORK
from meta.backend.tvm.te.precision import narrow, wide
from meta.backend.tvm.te.select import select
from meta.op.window import Windows

Axes = tuple[Windows, Windows, Windows]
Load = Callable[..., Any]
"""(place along each axis, lanes) -> as many elements side by side."""
Store = Callable[..., None]
"""(place along each axis, value, lanes)."""
PLACE = "int32"
"""The dtype of the numbers of elements: 64 bits would keep TVM from computing indices in 32."""
_ALONE = Windows(1, 1, 1)


@dataclass(frozen=True, slots=True)
class Plane:
    """What a plane is made of. axes: three, the first ones of one element where there are fewer.
    dtype: of the accumulation."""

    x: Load
    dy: Load
    write: Store
    axes: Axes
    dtype: str

    @property
    def lanes(self) -> int:
        return targets.lanes(64 if self.dtype == "float64" else 32)


def by_plane(x: Any, dy: Any, axes: Sequence[Windows], body: Callable[[Plane], None]) -> Any:
    """dx, every plane of which `body` writes. It works in the dtype of accumulation: TVM has no vectors of bfloat16."""
    rank, dtype = len(axes), wide(x.dtype)
    deep, high, last = (*(_ALONE,) * (3 - rank), *axes)

    def planes(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            given, shares, out = (script_tirx.buffer_proxy(buffer) for buffer in (*ins, *outs))
            kind = script_tirx.parallel if _is_large(x.shape) else script_tirx.serial
            with kind(0, x.shape[0] * x.shape[1]) as number:
                image = (tirx.floordiv(number, x.shape[1]), tirx.floormod(number, x.shape[1]))

                def at(place: Sequence[Any], lanes: int) -> tuple[Any, ...]:
                    return (*image, *place[3 - rank : -1], ramp(place[-1], lanes))

                def load(buffer: Any) -> Load:
                    return lambda *place, lanes=1: buffer[at(place, lanes)]

                def write(*place: Any, value: Any, lanes: int = 1) -> None:
                    out[at(place, lanes)] = value

                body(Plane(load(given), load(shares), write, (deep, high, last), dtype))
        return builder.get()

    inputs = [narrow(t, dtype, "wide") for t in (x, dy)]
    return narrow(te.extern([x.shape], inputs, planes, dtype=dtype, name="max_pool_dx"), x.dtype)


def _is_large(shape: Any) -> bool:
    """Whether so many elements, or as many as nobody knows, are worth several threads."""
    return not all(isinstance(d, IntImm) for d in shape) or prod(map(int, shape)) >= PARALLEL_WORK


def choose(elements: Iterable[tuple[Any, Any]], best: Any, place: Any, lanes: int) -> None:
    """Leave in `best` and `place` the maximum of (element, number) and its number: of equal ones the first, of several
    that are no number the last.

    They are kept in memory, which becomes registers: variables that depend on each other are substituted by TVM, to
    expressions that grow exponentially."""
    every = ramp(0, lanes)
    for k, (element, number) in enumerate(elements):
        value = script_tirx.bind(element)
        if k == 0:
            best[every], place[every] = value, number
            continue
        larger = tirx.any(value > best[every], tirx.isnan(value))
        place[every] = select(larger, number, place[every])
        best[every] = select(larger, value, best[every])


def ramp(start: Any, lanes: int) -> Any:
    return start if lanes == 1 else tirx.Ramp(start, 1, lanes)


def same(value: float, dtype: str, lanes: int) -> Any:
    return spread(tirx.const(value, dtype), lanes)


def spread(value: Any, lanes: int) -> Any:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def cast(value: Any, dtype: str, lanes: int) -> Any:
    return value.astype(dtype if lanes == 1 else f"{dtype}x{lanes}")


def local(shape: Sequence[int], dtype: str) -> Any:
    return script_tirx.buffer_proxy(script_tirx.alloc_buffer(shape, dtype, scope="local"))


def fill(buffer: Any, shape: Sequence[int], value: float, dtype: str, most: int) -> None:
    *outer, width = shape
    for start, lanes, count in chunks(width, most):
        with ExitStack() as opened:
            *at, chunk = loops(opened, [*outer, count])
            buffer[(*at, ramp(start + chunk * lanes, lanes))] = same(value, dtype, lanes)


def loops(opened: ExitStack, shape: Sequence[int]) -> list[Any]:
    return [opened.enter_context(script_tirx.serial(0, size)) for size in shape]


def chunks(size: int, most: int) -> Iterator[tuple[int, int, int]]:
    """(start, lanes, how many) of vectors that cover `size` elements, the widest first."""
    start, lanes = 0, most
    while lanes:
        count = (size - start) // lanes
        if count:
            yield start, lanes, count
        start, lanes = start + count * lanes, lanes // 2
