"""CUDA graphs of whole calls: the kernels of a program are recorded once and then launched together.

The first calls run kernel by kernel, because libraries choose algorithms and allocate memory then; the next one is
recorded and launched, like all that follow. A call runs the program once, so that programs may update parameters in
place. The graph has private memory: arguments are copied in, results are copied out. A program that cannot be recorded
goes on running kernel by kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Protocol, TypeVar
from weakref import WeakSet, finalize

from meta import tracing
from meta._generated import limits
from meta.backend.cuda import driver, memory_pool, streams
from meta.backend.memory import allocation
from meta.backend.memory.placed import Placed
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.dtype import itemsize
from meta.errors import MetaError
from meta.ir.type import TensorType, tensor_type
from meta.vm.lower.choose import Source, output_types, private_memory
from meta.vm.plan.kernels import Destinations
from meta.vm.runner import Machine

R = TypeVar("R")

MAX_RECORDINGS = 16
"""Most recordings of one program, made anew when arrays that it reads or overwrites in place are others."""
WARM_UP_CALLS = 2
"""Calls that run before one is recorded."""


class Forgetful(Protocol):
    def forget(self) -> None:
        """Free the recordings; the next calls record again."""


_recorded: WeakSet[Forgetful] = WeakSet()


def remember(call: Forgetful) -> None:
    """Have `forget_recordings` free the recordings of a call."""
    _recorded.add(call)


def forget_recordings() -> None:
    """Free the recordings of all programs, whose next calls record again. NCCL counts them as pending work and would
    wait for them for ever at shutdown."""
    for call in list(_recorded):
        call.forget()


def repays(source: Source, destinations: Destinations, copied: int | None = None) -> bool:
    """Whether starting all kernels at once saves more than copying arguments and results costs.

    copied: the bytes that are copied in every call, None for everything but the state of the program."""
    if copied is None:
        in_place = set(source.mutates.values())
        first = len(source.main.params) - len(source.constants)
        inputs = [p.type for i, p in enumerate(source.main.params[:first]) if i not in in_place]
        types = [t for t in (*inputs, *output_types(source)) if isinstance(t, TensorType) and t.is_static]
        copied = sum(int(t.nbytes) for t in types)
    return copied < destinations.kernels * limits.COPIED_BYTES_PER_KERNEL


def graph_call(machine: Machine, record: tracing.Record, source: Source, destinations: Destinations) -> GraphCall:
    """The machine behind a CUDA graph, which inputs that stay unchanged and the random keys are copied into."""
    types = [p.type for p in source.main.params if isinstance(p.type, TensorType)]
    overwritten = set(source.mutates.values())
    first = len(record.inputs)
    keys = first + len(record.state)
    moving = [i for i in range(first) if i not in overwritten]
    moving += range(keys, keys + len(record.random))
    return GraphCall(
        machine.main, types, moving, destinations, GraphRecorder(source.device, private_memory(source.choices))
    )


class GraphRecorder:
    """Runs work on a side stream, with allocations from a private pool, and records it as CUDA graphs.

    scopes: entered around the work, for libraries that allocate memory themselves.  refusal: why nothing more is
    recorded, "" while it may be."""

    def __init__(self, on: Device, scopes: Sequence[Callable[[], AbstractContextManager[Any]]]) -> None:
        self.on = on
        self.scopes = tuple(scopes)
        driver.set_device(on)
        self.stream = _side_stream(on)
        self.pool = memory_pool.require_pools(on).create_private_pool(self.stream)
        self.recorded = 0
        self.refusal = ""
        self._graphs: set[int] = set()
        finalize(self, _free, self._graphs)

    @contextmanager
    def private_pool(self) -> Generator[None, None, None]:
        """A scope in which meta allocates from the private memory."""
        with memory_pool.require_pools(self.on).use_private_pool(self.pool):
            yield

    def run(self, work: Callable[[], R], stream: int) -> R:
        """Run the work after everything that is queued on a stream, which then waits for it."""
        driver.make_stream_wait(self.stream, stream)
        result = self._inside(work)
        driver.make_stream_wait(stream, self.stream)
        return result

    def record(self, work: Callable[[], R], stream: int) -> tuple[int, R] | None:
        """A graph of the work, and what the work returned; None where it cannot be recorded."""
        driver.make_stream_wait(self.stream, stream)
        driver.begin_capture(self.stream)
        try:
            result = self._inside(work)
            graph = driver.end_capture(self.stream)
        except (MetaError, RuntimeError, ValueError) as error:
            driver.abandon_capture(self.stream)
            self.refusal = str(error).splitlines()[0]
            return None
        self._graphs.add(graph)
        self.recorded += 1
        if self.recorded == MAX_RECORDINGS:
            self.refusal = "the program reads or overwrites other arrays in every call"
        driver.make_stream_wait(stream, self.stream)
        return graph, result

    def launch(self, graph: int, stream: int) -> None:
        driver.launch_graph(graph, stream)

    def free(self, graph: int) -> None:
        """Free a graph."""
        self._graphs.discard(graph)
        driver.free_graph(graph)

    def _inside(self, work: Callable[[], R]) -> R:
        with ExitStack() as stack:
            stack.enter_context(self.private_pool())
            before = streams.set_stream(self.on, self.stream)
            stack.callback(streams.set_stream, self.on, before)
            for scope in self.scopes:
                stack.enter_context(scope())
            return work()


def _free(graphs: set[int]) -> None:
    for graph in graphs:
        driver.free_graph(graph)


def _runtime_tensor(data: Any) -> Any:
    """A raw tensor, which may be torch's, as one of TVM's runtime."""
    return data if hasattr(data.device, "dlpack_device_type") else tvm.from_dlpack(data.detach())


class GraphCall:
    """A machine for a program with destinations: `main(*raw tensors)` launches the graph as soon as there is one.

    main: the machine's function.  types: the types of the parameters before the destinations.
    moving: the parameters that are other tensors in every call, which are copied. The rest are the same tensors."""

    def __init__(
        self, main: Callable[..., Any], types: Sequence[TensorType], moving: Sequence[int],
        destinations: Destinations, recorder: GraphRecorder,
    ) -> None:  # fmt: skip
        self._main = main
        self.on = on = recorder.on
        self.recorder = recorder
        with recorder.private_pool():
            storages = [allocation.empty((max(size, 1),), "uint8", on) for size in destinations.storages]
            self.copied = {i: _Copied.of(allocation.empty(types[i].shape, types[i].dtype, on)) for i in moving}
        self.kept = tuple(sorted(set(range(len(types))) - self.copied.keys()))
        self.placed = [Placed(storages[t.storage], t.offset, t.shape, t.dtype) for t in destinations.tensors]
        self.targets = [p.data for p in self.placed]
        self.fixed: list[Any] = []
        self.results: Any = None
        self.outputs: list[tuple[_Copied, Callable[[], Any]]] = []
        self.graph = 0
        self.calls = 0
        self.lock = threading.Lock()

    def main(self, *data: Any) -> Any:
        """Run the program on raw tensors; the results are new tensors."""
        with self.lock:
            stream = streams.current_stream(self.on)
            driver.set_device(self.on)
            for i, static in self.copied.items():
                static.fill(data[i], stream)
            if self.graph and all(data[i] is x for i, x in zip(self.kept, self.fixed, strict=True)):
                self.recorder.launch(self.graph, stream)
            else:
                self._run(data, stream)
            return self._results(stream)

    def _run(self, data: Sequence[Any], stream: int) -> None:
        args = [_runtime_tensor(x) if i not in self.copied else self.copied[i].tensor for i, x in enumerate(data)]

        def work() -> Any:
            return self._main(*args, *self.targets)

        self.calls += 1
        if (
            self.calls > WARM_UP_CALLS
            and not self.recorder.refusal
            and (recorded := self.recorder.record(work, stream))
        ):
            if self.graph:
                self.recorder.free(self.graph)
            self.graph, results = recorded
            self._keep(results)
            self.fixed = [data[i] for i in self.kept]
            remember(self)
            self.recorder.launch(self.graph, stream)
            return
        self._keep(self.recorder.run(work, stream))

    def forget(self) -> None:
        """Free the recording; the next call records again."""
        with self.lock:
            if self.graph:
                driver.synchronize(streams.current_stream(self.on))
                self.recorder.free(self.graph)
            self.graph, self.fixed = 0, []

    def _keep(self, results: Any) -> None:
        """Keep the tensors that hold the results, with an allocator for a copy of each."""
        self.results = results
        tensors = [results] if isinstance(results, tvm.NDTensor) else list(results)
        kinds = [tensor_type(tuple(map(int, x.shape)), str(x.dtype), self.on) for x in tensors]
        self.outputs = [(_Copied.of(x), allocation.allocator(t)) for x, t in zip(tensors, kinds, strict=True)]

    def _results(self, stream: int) -> Any:
        outputs: list[Any] = []
        for source, allocate in self.outputs:
            out = allocate()
            source.copy_into(out, stream)
            outputs.append(out)
        return outputs[0] if isinstance(self.results, tvm.NDTensor) else outputs


@dataclass(frozen=True, slots=True)
class _Copied:
    """A tensor in the memory of the graph, with what its copies need. The other tensor may be torch's."""

    tensor: Any
    address: int
    byte_count: int

    @staticmethod
    def of(tensor: Any) -> _Copied:
        byte_count = prod(map(int, tensor.shape)) * itemsize(str(tensor.dtype))
        return _Copied(tensor, tensor.data_ptr(), byte_count)

    def fill(self, source: Any, stream: int) -> None:
        if self.byte_count:
            driver.copy(self.address, source.data_ptr(), self.byte_count, stream)

    def copy_into(self, target: Any, stream: int) -> None:
        if self.byte_count:
            driver.copy(target.data_ptr(), self.address, self.byte_count, stream)


@cache
def _side_stream(on: Device) -> int:
    """The stream of a device on which calls run until they are recorded."""
    return driver.create_stream()
