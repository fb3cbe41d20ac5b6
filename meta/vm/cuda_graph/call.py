"""CUDA graphs of whole calls: what a program gives to the device is recorded once and then started with one call.

The first calls run as they are, because libraries choose algorithms and get themselves memory then; the next one is
recorded and started, like all that follow. Nothing is run more often than it is asked for, so that programs may update
parameters in place. The graph works on memory of its own: arguments are copied in, results are copied out. A program
that cannot be recorded goes on running call by call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from weakref import finalize

from meta.device import Device
from meta.errors import MetaError
from meta.ir.type import TensorType
from meta.op.dialect.tvm import _adapter as tvm
from meta.op.dialect.tvm import _driver as driver
from meta.op.dialect.tvm import _memory
from meta.vm.relax.destinations import Destinations

WARM_UP = 2
"""Calls that run before one is recorded."""

MOST = 8
"""Recordings of one program, which has to be recorded again when what it overwrites is elsewhere."""

_streams: dict[Device, int] = {}


class GraphCall:
    """A machine of a program with destinations: `main(*raw tensors)` is a graph as soon as there is one.

    main: the machine's function.  types: those of the parameters before the destinations.
    moving: how many of them, the first, are different tensors in every call, or are values that do; the others keep
    their memory.  scopes: entered around calls that run, for libraries that allocate on their own."""

    def __init__(
        self, main: Callable[..., Any], types: Sequence[TensorType], moving: Sequence[int],
        destinations: Destinations, on: Device, scopes: Sequence[Callable[[], AbstractContextManager[Any]]],
    ) -> None:  # fmt: skip
        self._main = main
        self.on = on
        self.scopes = tuple(scopes)
        self.moving = tuple(moving)
        driver.enter(on)
        self.stream = _side_stream(on)
        self.pool = _memory.pools(on).private_pool(self.stream)
        with _memory.pools(on).privately(self.pool):
            storages = [_memory.empty((max(size, 1),), "uint8", on) for size in destinations.storages]
            self.inputs = [_memory.empty(types[i].shape, types[i].dtype, on) for i in self.moving]  # type: ignore[arg-type]
        self.targets = [_memory.view(storages[t.storage], t.shape, t.dtype) for t in destinations.tensors]
        self.fixed: list[Any] | None = None
        self.results: Any = None
        self.copies: list[tuple[Any, Callable[[], Any]]] = []
        self.graph = 0
        self.calls = 0
        self.recorded = 0
        self._freeing: Any = None
        self.why_not = ""
        """Why calls are not recorded, "" while that may still happen."""
        self.lock = threading.Lock()

    def main(self, *data: Any) -> Any:
        """Run the program on raw tensors; the results are in memory of their own."""
        with self.lock:
            here = _memory.current_stream(self.on)
            driver.enter(self.on)
            for at, static in zip(self.moving, self.inputs, strict=True):
                _memory.copy_into(data[at], static)
            fixed = [x for i, x in enumerate(data) if i not in self.moving]
            if self.graph and all(a is b for a, b in zip(fixed, self.fixed or (), strict=True)):
                driver.launch_graph(self.graph, here)
            else:
                self._run(data, fixed, here)
            return self._results()

    def _run(self, data: Sequence[Any], fixed: list[Any], here: int) -> None:
        args = list(data)
        for at, static in zip(self.moving, self.inputs, strict=True):
            args[at] = static
        self.calls += 1
        driver.wait_for(self.stream, here)
        if self.calls > WARM_UP and not self.why_not:
            self._record(args, fixed)
        if self.graph and self.fixed is fixed:
            driver.wait_for(here, self.stream)
            driver.launch_graph(self.graph, here)
            return
        self._keep(self._inside(args))
        driver.wait_for(here, self.stream)

    def _record(self, args: list[Any], fixed: list[Any]) -> None:
        driver.begin_capture(self.stream)
        try:
            results = self._inside(args)
            graph = driver.end_capture(self.stream)
        except (MetaError, RuntimeError, ValueError) as error:
            driver.abandon_capture(self.stream)
            self.why_not = str(error).splitlines()[0]
            return
        self._keep(results)
        if self._freeing is not None:
            self._freeing()
        self.graph, self.fixed = graph, fixed
        self._freeing = finalize(self, driver.free_graph, graph)
        self.recorded += 1
        if self.recorded == MOST:
            self.why_not = "arrays that the program overwrites are others in every call"

    def _inside(self, args: list[Any]) -> Any:
        """Run the program on the graph's stream and memory."""
        with ExitStack() as stack:
            stack.enter_context(_memory.pools(self.on).privately(self.pool))
            before = _memory.set_stream(self.on, self.stream)
            stack.callback(_memory.set_stream, self.on, before)
            for scope in self.scopes:
                stack.enter_context(scope())
            return self._main(*args, *self.targets)

    def _keep(self, results: Any) -> None:
        """Note where the program leaves its results, and how to make tensors like them."""
        self.results = results
        found = [results] if isinstance(results, tvm.NDTensor) else list(results)
        self.copies = [(x, _memory.allocator(tuple(map(int, x.shape)), str(x.dtype), self.on)) for x in found]

    def _results(self) -> Any:
        made: list[Any] = []
        for source, new in self.copies:
            out = new()
            _memory.copy_into(source, out)
            made.append(out)
        return made[0] if isinstance(self.results, tvm.NDTensor) else made


def _side_stream(on: Device) -> int:
    """The stream of a device on which calls run until they are recorded."""
    found = _streams.get(on)
    if found is None:
        found = _streams[on] = driver.new_stream()
    return found
