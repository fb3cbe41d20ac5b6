"""Collectives in two halves, between which a program computes.

A collective is a generator: it yields what torch's function returns, then writes the result. `communicate` runs it at
once. In a program, `start` begins it and `wait` ends it. On the CPU gloo's threads work in between; on a GPU the whole
collective is queued on a stream of its own, and `wait` makes the stream of the program wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeAlias

from meta.backend.cuda import driver, streams
from meta.backend.torch.groups import Group
from meta.device import Device

Steps: TypeAlias = Generator[Any, None, None]
"""Yields once, the work or works of torch to wait for, or None; writes the result afterwards."""


class Transfer:
    """A collective that has begun."""

    def __init__(self, name: str, group: Group, steps: Steps) -> None:
        group.calls += 1
        self.name, self.group, self.call, self.steps = name, group, group.calls, steps
        with group.reporting(name, self.call):
            works: Any = next(steps, None)
        self.works: list[Any] = works if isinstance(works, list) else [] if works is None else [works]

    def finish(self) -> None:
        """Wait for the other ranks, and write the result. Raises CommunicationError for a failure."""
        with self.group.reporting(self.name, self.call):
            for work in self.works:
                work.wait()
            for _ in self.steps:
                pass


class _Begun(threading.local):
    """transfers: where `communicate` leaves what has begun; None outside of `start`.
    in_flight: number -> the transfers on the CPU, or the event on a GPU, of a collective of a program."""

    def __init__(self) -> None:
        self.transfers: list[Transfer] | None = None
        self.in_flight: dict[Hashable, Any] = {}


_begun = _Begun()


def communicate(name: str, group: Group, steps: Steps) -> None:
    """Run a collective, or begin it inside of `start`. Raises CommunicationError for a failure."""
    transfer = Transfer(name, group, steps)
    if _begun.transfers is None:
        transfer.finish()
    else:
        _begun.transfers.append(transfer)


def starter(kernel: Callable[..., None], device: Device) -> Callable[..., None]:
    """`start(number, *tensors)`: begins the collective of `kernel(*tensors)`, whose tensors stay as they are, and are
    not read, until `wait(number)`."""
    return _stream_starter(kernel, device) if device.kind == "cuda" else _thread_starter(kernel)


def _thread_starter(kernel: Callable[..., None]) -> Callable[..., None]:
    def start(number: int, *tensors: Any) -> None:
        _begun.transfers = []
        try:
            kernel(*tensors)
            _begun.in_flight[number] = _begun.transfers
        finally:
            _begun.transfers = None

    return start


_streams: dict[Device, int] = {}


def _stream_starter(kernel: Callable[..., None], device: Device) -> Callable[..., None]:
    def start(number: int, *tensors: Any) -> None:
        stream = _streams.get(device)
        if stream is None:
            stream = _streams[device] = driver.create_stream()
        driver.make_stream_wait(stream, streams.current_stream(device))
        before = streams.set_stream(device, stream)
        try:
            kernel(*tensors)
        finally:
            streams.set_stream(device, before)
        _begun.in_flight[device, number] = driver.record_event(stream)

    return start


def waiter(device: Device) -> Callable[..., None]:
    """`wait(number, *tensors)`: ends the collective that `start` began under that number, in this thread. `tensors` are
    those of the collective: they tell the planner of memory how long it uses them."""

    def wait_for_event(number: int, *_: Any) -> None:
        driver.wait_for_event(streams.current_stream(device), _begun.in_flight.pop((device, number)))

    def wait_for_threads(number: int, *_: Any) -> None:
        for transfer in _begun.in_flight.pop(number):
            transfer.finish()

    return wait_for_event if device.kind == "cuda" else wait_for_threads
