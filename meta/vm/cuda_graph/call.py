"""CUDA graphs of whole calls: the kernels of a program are recorded once and then launched together.

The first calls run kernel by kernel, because libraries choose algorithms and allocate memory then; the next one is
recorded and launched, like all that follow. A call runs the program once, so that programs may update parameters in
place. The graph has private memory: arguments are copied in, results are copied out. A program that cannot be
recorded goes on running kernel by kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from weakref import WeakSet, finalize

from meta.backend.cuda import driver, memory_pool, streams
from meta.backend.memory import allocation
from meta.backend.memory.placed import Placed
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.errors import MetaError
from meta.ir.type import TensorType, tensor_type
from meta.vm.relax.destinations import Destinations

WARM_UP = 2
"""Calls that run before one is recorded."""

MAX_RECORDINGS = 8
"""Most recordings of one program, which is recorded again when the arrays that it overwrites are other ones."""

_streams: dict[Device, int] = {}
_recorded: WeakSet[GraphCall] = WeakSet()


def forget_recordings() -> None:
    """Free the recordings of all programs, whose next calls record again. NCCL takes them for work that it waits for
    when processes part, and waits for ever."""
    for call in list(_recorded):
        call.forget()


def _runtime_tensor(data: Any) -> Any:
    """A raw tensor, which may be torch's, as one of TVM's runtime."""
    return data if hasattr(data.device, "dlpack_device_type") else tvm.from_dlpack(data.detach())


class GraphCall:
    """A machine for a program with destinations: `main(*raw tensors)` launches the graph as soon as there is one.

    main: the machine's function.  types: those of the parameters before the destinations.
    moving: the parameters that are other tensors in every call; the rest keep their memory.
    scopes: entered around calls that run kernel by kernel, for libraries that allocate memory themselves."""

    def __init__(
        self, main: Callable[..., Any], types: Sequence[TensorType], moving: Sequence[int],
        destinations: Destinations, on: Device, scopes: Sequence[Callable[[], AbstractContextManager[Any]]],
    ) -> None:  # fmt: skip
        self._main = main
        self.on = on
        self.scopes = tuple(scopes)
        self.moving = tuple(moving)
        driver.set_device(on)
        self.stream = _side_stream(on)
        self.pool = memory_pool.require_pools(on).create_private_pool(self.stream)
        with memory_pool.require_pools(on).use_private_pool(self.pool):
            storages = [allocation.empty((max(size, 1),), "uint8", on) for size in destinations.storages]
            self.inputs = [allocation.empty(types[i].shape, types[i].dtype, on) for i in self.moving]  # type: ignore[arg-type]
        self.placed = [Placed(storages[t.storage], t.offset, t.shape, t.dtype) for t in destinations.tensors]
        self.targets = [p.data for p in self.placed]
        self.fixed: list[Any] | None = None
        self.results: Any = None
        self.copies: list[tuple[Any, Callable[[], Any]]] = []
        self.graph = 0
        self.calls = 0
        self.recorded = 0
        self._freeing: Any = None
        self.refusal = ""
        """Why calls are not recorded, "" while that may still happen."""
        self.lock = threading.Lock()

    def main(self, *data: Any) -> Any:
        """Run the program on raw tensors; the results are new tensors."""
        with self.lock:
            here = streams.current_stream(self.on)
            driver.set_device(self.on)
            for i, static in zip(self.moving, self.inputs, strict=True):
                allocation.copy_into(_runtime_tensor(data[i]), static)
            fixed = [x for i, x in enumerate(data) if i not in self.moving]
            if self.graph and all(a is b for a, b in zip(fixed, self.fixed or (), strict=True)):
                driver.launch_graph(self.graph, here)
            else:
                self._run(data, fixed, here)
            return self._results()

    def _run(self, data: Sequence[Any], fixed: list[Any], here: int) -> None:
        args = list(data)
        for i, static in zip(self.moving, self.inputs, strict=True):
            args[i] = static
        self.calls += 1
        driver.make_stream_wait(self.stream, here)
        if self.calls > WARM_UP and not self.refusal:
            self._record(args, fixed)
        if self.graph and self.fixed is fixed:
            driver.make_stream_wait(here, self.stream)
            driver.launch_graph(self.graph, here)
            return
        self._keep(self._inside(args))
        driver.make_stream_wait(here, self.stream)

    def _record(self, args: list[Any], fixed: list[Any]) -> None:
        driver.begin_capture(self.stream)
        try:
            results = self._inside(args)
            graph = driver.end_capture(self.stream)
        except (MetaError, RuntimeError, ValueError) as error:
            driver.abandon_capture(self.stream)
            self.refusal = str(error).splitlines()[0]
            return
        self._keep(results)
        if self._freeing is not None:
            self._freeing()
        self.graph, self.fixed = graph, fixed
        self._freeing = finalize(self, driver.free_graph, graph)
        _recorded.add(self)
        self.recorded += 1
        if self.recorded == MAX_RECORDINGS:
            self.refusal = "the program overwrites other arrays in every call"

    def forget(self) -> None:
        """Free the recording; the next call records again."""
        with self.lock:
            if self._freeing is not None:
                driver.synchronize(streams.current_stream(self.on))
                self._freeing()
            self.graph, self.fixed, self._freeing = 0, None, None

    def _inside(self, args: list[Any]) -> Any:
        """Run the program on the graph's stream and memory."""
        with ExitStack() as stack:
            stack.enter_context(memory_pool.require_pools(self.on).use_private_pool(self.pool))
            before = streams.set_stream(self.on, self.stream)
            stack.callback(streams.set_stream, self.on, before)
            for scope in self.scopes:
                stack.enter_context(scope())
            return self._main(*args, *self.targets)

    def _keep(self, results: Any) -> None:
        """Keep the tensors that hold the results, with an allocator for a copy of each."""
        self.results = results
        tensors = [results] if isinstance(results, tvm.NDTensor) else list(results)
        self.copies = [
            (x, allocation.allocator(tensor_type(tuple(map(int, x.shape)), str(x.dtype), self.on))) for x in tensors
        ]

    def _results(self) -> Any:
        outputs: list[Any] = []
        for source, allocate in self.copies:
            out = allocate()
            allocation.copy_into(source, out)
            outputs.append(out)
        return outputs[0] if isinstance(self.results, tvm.NDTensor) else outputs


def _side_stream(on: Device) -> int:
    """The stream of a device on which calls run until they are recorded."""
    stream = _streams.get(on)
    if stream is None:
        stream = _streams[on] = driver.create_stream()
    return stream
