"""Collectives in two halves, between which a program computes.

A collective is a generator: it yields what torch's function returns, then writes the result. `communicate` runs it at
once. In a program, `start` begins it and `wait` ends it. On the CPU gloo's threads work in between; on a GPU the whole
collective is queued on another stream than the program's kernels, which `wait` makes wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias

from meta.backend.cuda import driver, streams
from meta.backend.torch.groups import ProcessGroup
from meta.device import Device

Steps: TypeAlias = Generator[Any, None, None]
"""Yields once, the work or works of torch to wait for, or None; writes the result afterwards."""


class Transfer:
    """A collective that has begun."""

    def __init__(self, name: str, group: ProcessGroup, steps: Steps) -> None:
        self.name, self.group, self.steps, self.place = name, group, steps, group.enter(name)
        with group.reporting(name, self.place):
            works: Any = next(steps, None)
        self.works: list[Any] = works if isinstance(works, list) else [] if works is None else [works]

    def finish(self) -> None:
        """Wait for the other ranks, and write the result. Raises CommunicationError for a failure."""
        with self.group.reporting(self.name, self.place):
            for work in self.works:
                self.group.wait(work, self.name, self.place)
            for _ in self.steps:
                pass


class _Begun(threading.local):
    """transfers: where `communicate` leaves what has begun; None outside of `start`.
    in_flight: the number of a collective of a program -> what ends it."""

    def __init__(self) -> None:
        self.transfers: list[Transfer] | None = None
        self.in_flight: dict[int, Callable[[], None]] = {}


_begun = _Begun()


def communicate(name: str, group: ProcessGroup, steps: Steps) -> None:
    """Run a collective, or begin it inside of `start`. Raises CommunicationError for a failure."""
    transfer = Transfer(name, group, steps)
    if _begun.transfers is None:
        transfer.finish()
    else:
        _begun.transfers.append(transfer)


def starter(kernel: Callable[..., None], device: Device) -> Callable[..., None]:
    """`start(number, *tensors)`: begins the collective of `kernel(*tensors)`. Until `wait(number)` its operands stay as
    they are, and its results are not read."""
    begin = partial(_begin_on_stream, device) if device.kind == "cuda" else _begin

    def start(number: int, *tensors: Any) -> None:
        _begun.in_flight[number] = begin(kernel, tensors)

    return start


def wait(number: int, *_: Any) -> None:
    """End the collective that this thread began under that number. The tensors of the collective follow: they tell the
    planner of memory how long it uses them."""
    _begun.in_flight.pop(number)()


def _begin(kernel: Callable[..., None], tensors: tuple[Any, ...]) -> Callable[[], None]:
    transfers = _begun.transfers = []
    try:
        kernel(*tensors)
    finally:
        _begun.transfers = None

    def finish() -> None:
        for transfer in transfers:
            transfer.finish()

    return finish


_streams: dict[Device, int] = {}


def _begin_on_stream(device: Device, kernel: Callable[..., None], tensors: tuple[Any, ...]) -> Callable[[], None]:
    stream = _streams.get(device)
    if stream is None:
        stream = _streams[device] = driver.create_stream()
    driver.make_stream_wait(stream, streams.current_stream(device))
    before = streams.set_stream(device, stream)
    try:
        kernel(*tensors)
    finally:
        streams.set_stream(device, before)
    done = driver.record_event(stream)
    return lambda: driver.wait_for_event(streams.current_stream(device), done)
