"""CUDA graphs of whole calls: the kernels of a program are recorded once and then launched together.

The first calls run kernel by kernel, because libraries choose algorithms and allocate memory then; the next one is
recorded and launched, like all that follow. A call runs the program once, so that programs may update parameters in
place. The graph has private memory: arguments are copied in, results are copied out. Arguments that keep their memory
from call to call are read where they are; the program is recorded again when one is elsewhere. A program that cannot
be recorded goes on running kernel by kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any
from weakref import WeakSet, finalize

from meta import tracing
from meta._generated import limits
from meta.backend.cuda import driver, memory_pool, streams
from meta.backend.memory import allocation
from meta.backend.memory.allocation import ALIGNMENT
from meta.backend.memory.placed import Placed
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.dtype import itemsize
from meta.errors import MetaError
from meta.ir.type import TensorType, tensor_type
from meta.vm.lower.choose import Source, output_types, private_memory
from meta.vm.plan.allocations import Destinations
from meta.vm.runner import Machine

MAX_RECORDINGS = 8
"""Most recordings of one program, which is recorded again when the arrays that it overwrites are other ones, and when
an argument that is not copied has moved."""


_recorded: WeakSet[GraphCall] = WeakSet()


def forget_recordings() -> None:
    """Free the recordings of all programs, whose next calls record again. NCCL counts them as pending work and would
    wait for them for ever at shutdown."""
    for call in list(_recorded):
        call.forget()


def repays(source: Source, destinations: Destinations, stable: Collection[int] = ()) -> bool:
    """Whether starting all kernels at once saves more than copying arguments and results costs.

    stable: the inputs that are read where they are."""
    in_place = {*source.mutates.values(), *stable}
    first = len(source.main.params) - len(source.constants)
    inputs = [p.type for i, p in enumerate(source.main.params[:first]) if i not in in_place]
    copied = sum(int(t.nbytes) for t in (*inputs, *output_types(source)) if isinstance(t, TensorType) and t.is_static)
    return copied < destinations.kernels * limits.COPIED_BYTES_PER_KERNEL


def graph_call(
    machine: Machine, record: tracing.Record, source: Source, destinations: Destinations, stable: Collection[int] = ()
) -> GraphCall:
    """The machine behind a CUDA graph, which inputs that stay unchanged and the random keys are copied into.

    stable: the inputs that mostly have the same memory, which the graph reads there."""
    types = [p.type for p in source.main.params if isinstance(p.type, TensorType)]
    overwritten = set(source.mutates.values())
    first = len(record.inputs)
    keys = first + len(record.state)
    moving = [i for i in range(first) if i not in overwritten and i not in stable]
    moving += range(keys, keys + len(record.random))
    scopes = private_memory(source.choices)
    return GraphCall(
        machine.main, types, moving, destinations, source.device, scopes, sorted(stable), overwritten & {*stable}
    )


def _runtime_tensor(data: Any) -> Any:
    """A raw tensor, which may be torch's, as one of TVM's runtime."""
    return data if hasattr(data.device, "dlpack_device_type") else tvm.from_dlpack(data.detach())


class GraphCall:
    """A machine for a program with destinations: `main(*raw tensors)` launches the graph as soon as there is one.

    main: the machine's function.  types: the types of the parameters before the destinations.
    moving: the parameters that are other tensors in every call, which are copied.
    stable: those that may be other tensors but have mostly the same memory, as parameters of a model of torch; the
        graph reads them there. The rest are the same tensors in every call.
    written: the stable parameters that the program writes, which are never copied.
    scopes: entered around calls that run kernel by kernel, for libraries that allocate memory themselves."""

    def __init__(
        self, main: Callable[..., Any], types: Sequence[TensorType], moving: Sequence[int],
        destinations: Destinations, on: Device, scopes: Sequence[Callable[[], AbstractContextManager[Any]]],
        stable: Sequence[int] = (), written: Collection[int] = (),
    ) -> None:  # fmt: skip
        self._main = main
        self.on = on
        self.types = tuple(types)
        self.scopes = tuple(scopes)
        driver.set_device(on)
        self.stream = _side_stream(on)
        self.pool = memory_pool.require_pools(on).create_private_pool(self.stream)
        with memory_pool.require_pools(on).use_private_pool(self.pool):
            storages = [allocation.empty((max(size, 1),), "uint8", on) for size in destinations.storages]
        self.copied: dict[int, _Copied] = {}
        for i in moving:
            self._copy_from_now_on(i)
        self.moves = dict.fromkeys(stable, 0)
        """How often each stable parameter that is not copied has moved."""
        self.written = frozenset(written)
        self.kept = tuple(sorted(set(range(len(types))) - self.copied.keys() - self.moves.keys()))
        self.placed = [Placed(storages[t.storage], t.offset, t.shape, t.dtype) for t in destinations.tensors]
        self.targets = [p.data for p in self.placed]
        self.fixed: list[Any] = []
        self.addresses: dict[int, int] = {}
        self.results: Any = None
        self.outputs: list[tuple[_Copied, Callable[[], Any]]] = []
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
            stream = streams.current_stream(self.on)
            driver.set_device(self.on)
            if self.graph and self._is_recorded(data):
                self._fill(data, stream)
                driver.launch_graph(self.graph, stream)
            else:
                self._run(data, stream)
            return self._results(stream)

    def _is_recorded(self, data: Sequence[Any]) -> bool:
        if any(data[i] is not x for i, x in zip(self.kept, self.fixed, strict=True)):
            return False
        return all(data[i].data_ptr() == address for i, address in self.addresses.items())

    def _fill(self, data: Sequence[Any], stream: int) -> None:
        for i, static in self.copied.items():
            static.fill(data[i], stream)

    def _copy_from_now_on(self, i: int) -> None:
        kind = self.types[i]
        with memory_pool.require_pools(self.on).use_private_pool(self.pool):
            self.copied[i] = _Copied.of(allocation.empty(kind.shape, kind.dtype, self.on))  # type: ignore[arg-type]

    def _run(self, data: Sequence[Any], stream: int) -> None:
        warm_up = 2  # Calls that run before one is recorded.
        self._note_moves(data)
        self._fill(data, stream)
        args = [_runtime_tensor(x) if i not in self.copied else self.copied[i].tensor for i, x in enumerate(data)]
        self.calls += 1
        driver.make_stream_wait(self.stream, stream)
        if self.calls > warm_up and not self.refusal and self._record(args, data):
            driver.make_stream_wait(stream, self.stream)
            driver.launch_graph(self.graph, stream)
            return
        self._keep(self._inside(args))
        driver.make_stream_wait(stream, self.stream)

    def _note_moves(self, data: Sequence[Any]) -> None:
        """Copy from now on the stable parameters that moved too often, and those that kernels cannot read in place."""
        max_moves = 1  # How often an argument may move before it is copied in every call.
        for i in list(self.moves):
            address = data[i].data_ptr()
            self.moves[i] += address != self.addresses.get(i, address)
            if i not in self.written and (self.moves[i] > max_moves or address % ALIGNMENT):
                del self.moves[i]
                self._copy_from_now_on(i)

    def _record(self, args: list[Any], data: Sequence[Any]) -> bool:
        """Record the program; whether that was possible."""
        driver.begin_capture(self.stream)
        try:
            results = self._inside(args)
            graph = driver.end_capture(self.stream)
        except (MetaError, RuntimeError, ValueError) as error:
            driver.abandon_capture(self.stream)
            self.refusal = str(error).splitlines()[0]
            return False
        self._keep(results)
        if self._freeing is not None:
            self._freeing()
        self.graph = graph
        self.fixed = [data[i] for i in self.kept]
        self.addresses = {i: data[i].data_ptr() for i in self.moves}
        self._freeing = finalize(self, driver.free_graph, graph)
        _recorded.add(self)
        self.recorded += 1
        if self.recorded == MAX_RECORDINGS:
            self.refusal = "the program overwrites other arrays in every call"
        return True

    def forget(self) -> None:
        """Free the recording; the next call records again."""
        with self.lock:
            if self._freeing is not None:
                driver.synchronize(streams.current_stream(self.on))
                self._freeing()
            self.graph, self.fixed, self.addresses, self._freeing = 0, [], {}, None

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
