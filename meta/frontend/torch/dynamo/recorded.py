"""Calls of graphs of torch as CUDA graphs that read and write torch's tensors where they are.

Parameters, and what the forward graph saved, are read in place: a recording holds for their addresses. Results are
written to memory that the program keeps. What is saved for the backward graph, and gradients, are that memory, so a
training step copies no activation; other results are copied, since callers keep them for as long as they like. Before
memory is written again, nothing may refer to what an earlier call left there. Several forward passes may precede the
backward pass, and gradients accumulate, so there are several such memories. A call that finds all of them in use runs
kernel by kernel into new tensors.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch

from meta.backend.memory.allocation import ALIGNMENT
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.frontend.torch.dynamo.convert import Converted
from meta.frontend.torch.dynamo.memory import allocator, fill
from meta.frontend.torch.dynamo.outputs import as_torch, shared_results
from meta.frontend.torch.dynamo.results import GraphResult
from meta.frontend.torch.dynamo.roles import Roles
from meta.frontend.torch.dynamo.shapes import inverse
from meta.ir.type import TensorType
from meta.vm.cuda_graph import MAX_RECORDINGS, WARM_UP_CALLS, GraphRecorder, remember
from meta.vm.plan.kernels import Destinations
from meta.vm.program import Program
from meta.vm.runner import unpacker

Values = list[Any]
"""The arguments of a call; after the call followed by the results of the program."""

MEMORIES = 3
"""Most memories of results of one program: two passes before a backward pass, as of siamese networks, need two, and
gradients that are kept while new ones are added to them as many."""
MAX_PLACES = 2
"""Most addresses of a parameter before it is copied in every call."""


@dataclass(slots=True)
class _Target:
    """Memory of one result. written: the tensor that a kernel fills.  seen: the same memory as torch lays it out."""

    written: Any
    seen: torch.Tensor

    @staticmethod
    def of(memory: torch.Tensor, shape: Sequence[int], result: GraphResult) -> _Target:
        """memory: at the start of its storage.  shape: of the result in the program."""
        view = _as_result(memory.view(tuple(shape)), result)
        seen = torch.empty(0, dtype=view.dtype, device=memory.device)  # autograd refuses to write to some views
        seen.set_(memory.untyped_storage(), 0, tuple(view.shape), view.stride())
        return _Target(tvm.from_dlpack(memory), seen)


class _Memory:
    """Memory for the results of a call.

    graphs: addresses of what is read in place -> recording, and what the program returned."""

    def __init__(self, targets: Mapping[int, _Target]) -> None:
        self.targets = targets
        self.graphs: dict[tuple[int, ...], tuple[int, list[Any]]] = {}
        self.tensors = [t.seen for t in targets.values()]
        self.storages = [t.untyped_storage()._cdata for t in self.tensors]
        self.unused = self._references()

    def _references(self) -> tuple[list[int], list[int], list[int]]:
        """How many refer to each storage, to each tensor of it, and to its Python object."""
        tensors = self.tensors
        storages = list(map(torch._C._storage_Use_Count, self.storages))
        return storages, list(map(_use_count, tensors)), list(map(sys.getrefcount, tensors))

    def is_free(self) -> bool:
        """Whether nothing refers to the results of an earlier call."""
        return self._references() == self.unused


@dataclass(slots=True)
class _Places:
    """Where a program writes, seen in its first call.

    targets: result -> the index of its destination, and its shape, for results in storages of their own.
    others: index -> the tensor, for destinations that are no results."""

    targets: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict[int, tuple[int, tuple[int, ...]]])
    others: dict[int, Any] = field(default_factory=dict[int, Any])


class RecordedCalls:
    """The calls of a program that has destinations. Call it with the arguments of the graph; it returns the results by
    their numbers, and the saved ones by number + count of results."""

    def __init__(
        self, program: Program, converted: Converted, roles: Roles, recorder: GraphRecorder, sources: Mapping[str, str],
        prepare: Callable[[Values], tuple[list[Any], bool]], write_back: Callable[[Values, Sequence[Any]], None],
        device: Device,
    ) -> None:  # fmt: skip
        destinations = program.loaded.destinations
        assert destinations is not None
        self.destinations: Destinations = destinations
        self.converted, self.roles, self.recorder = converted, roles, recorder
        self.prepare, self.write_back = prepare, write_back
        self.main: Callable[..., Any] = program.machine.main
        self.fixed = [*[x._data for _, x in converted.record.state], *[c._data for c in program.constants]]
        self.device = str(device)
        self.index = device.index
        self.results = len(converted.results)
        self.unpack = unpacker(self.results)
        self.shared = shared_results(program.optimized, self.results)
        self.allocators = [allocator(r.layout, r.elements, self.device, sources) for r in converted.results]
        self.positions = [each.position for each in converted.inputs]
        self.in_place = set(roles.in_place)
        self.addresses: dict[int, set[int]] = {i: set() for i in self.in_place}
        self.seen: set[tuple[int, ...]] = set()
        self.static: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.places: _Places | None = None
        self.memories: list[_Memory] = []
        self.calls = 0
        self.stream: Any = None
        self.lock = threading.Lock()
        self._arrange()

    def _arrange(self) -> None:
        """Derive what calls do from what is read in place; recordings of before no longer hold."""
        self.forget_graphs()
        self.read_places = [self.positions[i] for i in sorted(self.in_place)]
        wholes = [whole for i in sorted(self.in_place) if (whole := self.converted.inputs[i].whole)]
        self.read_places += [position for whole in wholes for position, _ in whole.parts[1:]]
        for i in range(len(self.positions)):
            if i not in self.in_place and i not in self.static:
                self.static[i] = self._static(i)
        self.copies = [(seen, self.converted.inputs[i]) for i, (_, seen) in self.static.items()]
        self.copied_back = [i for i in self.converted.written if i in self.static]

    def _static(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Memory of an input that is copied: as the program reads it, and as torch writes it."""
        kind = self.converted.record.main.params[i].type
        assert isinstance(kind, TensorType)
        x = torch.empty(tuple(map(int, kind.shape)), dtype=_dtype(kind.dtype), device=self.device)
        read = torch.view_as_real(x) if x.is_complex() else x
        return read, _permuted(x, self.converted.inputs[i].order)

    # --- calls -------------------------------------------------------------------------------------------------------

    def __call__(self, values: Values) -> dict[int, torch.Tensor]:
        """The results of a call on torch's current stream."""
        with self.lock:
            stream = self._current_stream()
            addresses = tuple(map(torch.Tensor.data_ptr, [values[p] for p in self.read_places]))
            memory = next((m for m in self.memories if m.is_free()), None)
            recorded = memory.graphs.get(addresses) if memory is not None else None
            if memory is None or recorded is None:
                return self._run(values, addresses, memory, stream)
            self._fill(values)
            self.recorder.launch(recorded[0], stream)
            return self._finish(values, memory, recorded[1])

    def _current_stream(self) -> int:
        current = torch.cuda.current_stream(self.index)
        if self.stream is not None and self.stream != current:
            current.wait_stream(self.stream)  # the memory is used in the order of calls
        self.stream = current
        return current.cuda_stream

    def _fill(self, values: Values) -> None:
        for static, each in self.copies:
            static.copy_(each.tensor(values))

    def _run(
        self, values: Values, addresses: tuple[int, ...], memory: _Memory | None, stream: int
    ) -> dict[int, torch.Tensor]:
        """A call that is not recorded yet."""
        self.calls += 1
        inputs, _ = self.prepare(values)
        if self.recorder.refusal:
            return self._run_kernels(values, inputs, stream)
        if self.places is None or self.calls <= WARM_UP_CALLS:
            self.seen.add(addresses)
            return self._run_kernels(values, inputs, stream)
        if self._moved(inputs, addresses):
            addresses = tuple(values[p].data_ptr() for p in self.read_places)
            memory = next((m for m in self.memories if m.is_free()), None)
        if addresses not in self.seen:  # of arguments that are elsewhere in every call, none is recorded
            self.seen = {addresses, *list(self.seen)[:MAX_RECORDINGS]}
            return self._run_kernels(values, inputs, stream)
        if memory is None and len(self.memories) < MEMORIES:
            memory = _Memory({r: self._target(r) for r in self.places.targets})
            self.memories.append(memory)
        if memory is None:
            return self._run_kernels(values, inputs, stream)
        self._fill(values)
        inputs = [self.static[i][0] if i in self.static else x for i, x in enumerate(inputs)]
        recorded = self.recorder.record(partial(self._called, inputs, memory.targets), stream)
        if recorded is None:
            return self._run_kernels(values, self.prepare(values)[0], stream)
        graph, raw = recorded
        memory.graphs[addresses] = graph, raw
        remember(self)
        self.recorder.launch(graph, stream)
        return self._finish(values, memory, raw)

    def _run_kernels(self, values: Values, inputs: list[Any], stream: int) -> dict[int, torch.Tensor]:
        """A call kernel by kernel, into new tensors."""
        if self.places is None:
            raw, targets = self._first(inputs, stream)
        else:
            targets = {r: self._target(r) for r in self.places.targets}
            raw = self.recorder.run(lambda: self._called(inputs, targets), stream)
        self.write_back(values, inputs)
        results = {r: t.seen for r, t in targets.items()}
        results |= self._copied(values, raw, [r for r in range(self.results) if r not in results])
        return results | {r + self.results: results[r] for r in self.roles.saved}

    def _moved(self, inputs: Sequence[Any], addresses: Sequence[int]) -> bool:
        """Note where inputs are. Those that move often, or cannot be read in place, are copied from now on; returns
        whether there are new ones."""
        before = len(self.in_place)
        for i, address in zip(sorted(self.in_place), addresses, strict=False):
            self.addresses[i].add(address)
            most = MAX_RECORDINGS if i in self.roles.fixed else MAX_PLACES
            is_elsewhere = inputs[i].data_ptr() != address or address % ALIGNMENT
            if is_elsewhere or (len(self.addresses[i]) > most and i not in self.converted.written):
                self.in_place.discard(i)
        if len(self.in_place) == before:
            return False
        self._arrange()
        return True

    # --- memory ------------------------------------------------------------------------------------------------------

    def _first(self, inputs: Sequence[Any], stream: int) -> tuple[list[Any], dict[int, _Target]]:
        """The first call, which shows where results are. The private pool, which frees nothing, has none of them."""
        tensors, sizes = self.destinations.tensors, self.destinations.storages
        storages = [torch.empty(max(size, 1), dtype=torch.uint8, device=self.device) for size in sizes]
        views = [_view(storages[t.storage], t.offset, t.shape, t.dtype) for t in tensors]
        raw = self.recorder.run(lambda: self._main(inputs, map(tvm.from_dlpack, views)), stream)
        users = Counter(t.storage for t in tensors)
        alone = {views[k].data_ptr(): k for k, t in enumerate(tensors) if users[t.storage] == 1 and views[k].numel()}
        places = _Places()
        found: dict[int, _Target] = {}
        for r, (x, result) in enumerate(zip(raw, self.converted.results, strict=False)):
            k = alone.pop(x.data_ptr(), None)
            if k is not None and r not in self.shared and result.elements is None:
                places.targets[r] = k, tuple(map(int, x.shape))
                found[r] = _Target.of(views[k], places.targets[r][1], result)
        own = {tensors[k].storage for k, _ in places.targets.values()}
        places.others = {k: tvm.from_dlpack(views[k]) for k, t in enumerate(tensors) if t.storage not in own}
        self.places = places
        return raw, found

    def _target(self, r: int) -> _Target:
        assert self.places is not None
        k, shape = self.places.targets[r]
        place = self.destinations.tensors[k]
        memory = torch.empty(place.shape, dtype=_dtype(place.dtype), device=self.device)
        return _Target.of(memory, shape, self.converted.results[r])

    def _called(self, inputs: Sequence[Any], targets: Mapping[int, _Target]) -> list[Any]:
        assert self.places is not None
        written = {k: targets[r].written for r, (k, _) in self.places.targets.items()} | self.places.others
        return self._main(inputs, [written[k] for k in range(len(written))])

    def _main(self, inputs: Sequence[torch.Tensor], targets: Iterable[Any]) -> list[Any]:
        """Run the program. With a tensor of torch among the arguments, it would run on torch's stream."""
        return self.unpack(self.main(*[tvm.from_dlpack(x.detach()) for x in inputs], *self.fixed, *targets))

    def _finish(self, values: Values, memory: _Memory, raw: Sequence[Any]) -> dict[int, torch.Tensor]:
        """The results of a launch."""
        for i in self.copied_back:
            fill(values[self.positions[i]], self.static[i][1])
        targets, roles = memory.targets, self.roles
        results = {r + self.results: targets[r].seen for r in roles.saved if r in targets}
        others: list[int] = []
        for r in roles.visible:
            if r not in targets:
                others.append(r)
            else:
                results[r] = targets[r].seen.detach() if roles.are_lent else targets[r].seen.clone()
        others += [r for r in roles.saved if r not in targets]
        if others:
            copied = self._copied(values, raw, others)
            results |= copied | {r + self.results: x for r, x in copied.items()}
        return results

    def _copied(self, values: Values, raw: Sequence[Any], wanted: Sequence[int]) -> dict[int, torch.Tensor]:
        """Results that share memory with others, or whose storage is larger, in tensors of their own."""
        results = self.converted.results
        return {r: fill(self.allocators[r](values), _as_result(as_torch(raw[r]), results[r])) for r in wanted}

    def forget_graphs(self) -> None:
        for memory in self.memories:
            for graph, _ in memory.graphs.values():
                self.recorder.free(graph)
            memory.graphs.clear()

    def forget(self) -> None:
        """Free the recordings; the next calls record again."""
        with self.lock:
            if self.stream is not None:
                self.stream.synchronize()
            self.forget_graphs()


_use_count: Callable[[torch.Tensor], int] = torch.Tensor._use_count  # type: ignore[attr-defined]


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _view(storage: torch.Tensor, offset: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = _dtype(dtype)
    return storage[offset : offset + prod(shape) * kind.itemsize].view(kind).view(tuple(shape))


def _as_result(x: torch.Tensor, result: GraphResult) -> torch.Tensor:
    """A tensor as the program has it -> as torch has it, in the same memory."""
    return _permuted(torch.view_as_complex(x) if result.layout.dtype.is_complex else x, result.order)


def _permuted(x: torch.Tensor, order: Sequence[int] | None) -> torch.Tensor:
    return x if order is None else x.permute(inverse(order))
