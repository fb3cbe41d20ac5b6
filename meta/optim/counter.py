"""How often parameters were updated, counted by programs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from meta import tracing
from meta.device import Device
from meta.eager.ndarray import NDArray
from meta.modes import modes
from meta.optim.number import StateNumber


class Counter:
    """The number of updates that some parameters had, all of them the same.

    was_traced: whether a program may count it.  trace: the trace that counted it last."""

    __slots__ = ("count", "names", "trace", "was_traced")

    def __init__(self, value: int, device: Device, names: set[str]) -> None:
        self.count = StateNumber(value, "int64", device)
        self.names = names
        self.was_traced = False
        self.trace: Any = lambda: None

    def advance(self) -> None:
        if modes.trace is not None:
            self.was_traced = True
            self.trace = weakref.ref(modes.trace)
        self.count.assign(self.count.operand + 1)

    def without(self, names: set[str], device: Device) -> Counter:
        """Take `names` out, which differ from now on; their counter, with the present number.

        Programs that count both by this counter are stale."""
        self.names -= names
        other = Counter(int(self.count.host_value()), device, names)
        if modes.trace is not None and self.trace() is modes.trace:
            other.count.array.update(self.count.array)
        if self.was_traced:
            tracing.invalidate()
        return other


class Counters:
    """The counters of an optimizer: parameters that were always updated together share one."""

    def __init__(self) -> None:
        self._all: list[Counter] = []

    def add(self, devices: Mapping[str, Device]) -> None:
        """Count parameters from 0. devices: name -> where the parameter is."""
        for device, names in _by_device(devices, devices):
            if device is not None:
                self._all.append(Counter(0, device, names))

    def advance(self, active: Mapping[str, Device]) -> None:
        """Count an update of parameters. active: name -> where the parameter is."""
        counted = {name for counter in self._all for name in counter.names}
        self.add({name: device for name, device in active.items() if name not in counted})
        for counter in list(self._all):
            head, *others = sorted(_by_device(counter.names, active), key=lambda part: part[0] is None)
            self._all += [counter.without(names, device or counter.count.array.device) for device, names in others]
            if head[0] is not None:
                counter.count.move(head[0])
        for counter in self._all:
            if counter.names & active.keys():
                counter.advance()

    def rename(self, names: Mapping[str, str]) -> None:
        """Give parameters other names: old -> new."""
        for counter in self._all:
            counter.names = {names.get(name, name) for name in counter.names}

    def shared(self, names: Iterable[str]) -> Iterator[tuple[StateNumber, set[str]]]:
        """The numbers of updates of parameters, each with the names that have it."""
        name_set = set(names)
        return ((c.count, c.names & name_set) for c in self._all if c.names & name_set)

    def arrays(self) -> dict[str, NDArray]:
        """Parameter -> its number of updates; shared arrays occur for each of their parameters."""
        return {name: counter.count.array for counter in self._all for name in sorted(counter.names)}

    def distinct(self) -> Iterator[tuple[str, NDArray]]:
        """Each array once, with the name of one of its parameters."""
        return ((min(counter.names), counter.count.array) for counter in self._all)

    def assign(self, values: Mapping[str, int]) -> None:
        """Set the numbers. Parameters that share a counter and have different ones are separated."""
        for counter in list(self._all):
            parts: dict[int, set[str]] = {}
            for name in counter.names:
                parts.setdefault(values[name], set()).add(name)
            (first, _), *others = parts.items()
            for value, names in others:
                separate = counter.without(names, counter.count.array.device)
                separate.count.assign(value)
                self._all.append(separate)
            counter.count.assign(first)


def _by_device(names: Any, devices: Mapping[str, Device]) -> list[tuple[Device | None, set[str]]]:
    """The names by the device of each, None for those without one."""
    parts: dict[Device | None, set[str]] = {}
    for name in names:
        parts.setdefault(devices.get(name), set()).add(name)
    return list(parts.items())
