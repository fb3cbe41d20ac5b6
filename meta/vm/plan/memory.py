"""Memory for the tensors of a list: which of them share it, and where each lies.

New values of parameters are written to the memory of the parameters. Such a kernel runs as soon as its operands exist
and the old value has had its last reader, so that gradients are freed early. A kernel that reads the old value itself
writes over it where that is safe (`overlap`). Otherwise the new value is computed in other memory and copied at the
end.

At the peak of memory, a kernel writes its result over an operand that it reads last, where the kernel may (`overlap`).
Tensors that never live at the same time may share memory. In separate storages, each as large as the largest of its
tensors, the machine allocates them itself. In one storage with offsets (an arena) less is wasted; that is for programs
whose memory a caller provides, because kernels take tensors that start where their memory does.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import Aliases, live_bytes, memory_sizes, spans
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Operand,
    PlannedBytes,
    Step,
    Tensor,
    leaves,
    map_leaves,
    same_shape,
)

Span = tuple[int, int]
"""The positions of the first and the last use of a tensor."""
_GRAIN: Final = 256
"""Bytes that tensors of an arena start at multiples of, as libraries on GPUs expect."""


# --- new values of parameters -----------------------------------------------------------------------------------------


def update_in_place(function: KernelList, functions: KernelTable, constants: Collection[Memory]) -> None:
    """Give the new values of parameters the memory of the parameters.

    constants: the memory of parameters that hold constants of the program, which must not be returned to callers."""
    function.updates = [(v, p) for v, p in function.updates if v.tensor is not p]
    _save_old_values(function, functions, {p.memory for _, p in function.updates} | set(constants))
    _run_early(function)
    write_directly = _direct_writer(function, functions)
    uses = Counter(o.tensor for o in (*leaves(function.result), *(v for v, _ in function.updates)))
    for i, (value, param) in enumerate(function.updates):
        unshared = value.view is None and uses[value.tensor] == 1
        if not (unshared and write_directly(value.tensor, param)):
            target = Tensor(f"{param.name}_new", param.shape, param.dtype, param.memory, value.tensor)
            function.steps.append(functions.copy(value, target))
            function.updates[i] = (Operand(target), param)


def _save_old_values(function: KernelList, functions: KernelTable, guarded: Collection[Memory]) -> None:
    """Results, and new values, that are parameters about to be overwritten or constants, or may be, are copied."""
    aliases = Aliases(function.steps)
    copies: dict[tuple[Tensor, object], Tensor] = {}
    saved: list[tuple[Tensor, KernelCall]] = []

    def save(operand: Operand, allowed: Memory | None = None) -> Operand:
        tensor = operand.tensor
        if not (aliases.of(tensor) - {allowed}) & set(guarded):
            return operand
        key = tensor, operand.view
        if key not in copies:
            copies[key] = Tensor(f"{tensor.name}_copy", operand.shape, tensor.dtype, copies=tensor)
            saved.append((tensor, functions.copy(operand, copies[key])))
        return Operand(copies[key])

    function.result = map_leaves(function.result, save)
    # An object that may be the parameter which it replaces is copied there once everything else was read.
    allowed = [p.memory if v.tensor.memory.kind == OBJECT else None for v, p in function.updates]
    function.updates = [(save(v, memory), p) for (v, p), memory in zip(function.updates, allowed, strict=True)]
    for tensor, call in reversed(saved):
        made = [i for i, step in enumerate(function.steps) if tensor in step.results]
        function.steps.insert(made[0] + 1 if made else 0, call)
    kept = {o.tensor for o in leaves(function.result)}
    for tensor in copies.values():
        tensor.memory.kind = PLANNED if tensor.is_static and tensor not in kept else OWN


def _run_early(function: KernelList) -> None:
    """Move the calls that compute only new values of parameters to the first place where their operands exist and no
    later step reads those parameters. Calls whose values are read before that place stay where they are."""
    steps = function.steps
    targets = {v.tensor: p.memory for v, p in function.updates if v.view is None}
    position: dict[Step, tuple[int, int]] = {s: (i, 0) for i, s in enumerate(steps)}
    makers: dict[Tensor, Step] = {t: s for s in steps for t in s.results}
    aliases = Aliases(steps)
    readers: dict[Memory, list[Step]] = {m: [steps[i] for i in found] for m, found in aliases.readers(steps).items()}
    movable = [s for s in steps if isinstance(s, KernelCall) and all(t in targets for t in s.results)]
    moved = set[Step](movable)
    for order, call in enumerate(movable, 1):
        before: list[Step] = [makers[o.tensor] for o in call.reads if o.tensor in makers]
        before += [s for t in call.results for s in readers.get(targets[t], ()) if s not in moved]
        last = max((position[s][0] for s in before), default=-1)
        if not any(position[s][0] <= last for t in call.results for s in readers.get(t.memory, ())):
            position[call] = (last, order)
    function.steps = sorted(steps, key=position.__getitem__)


def _direct_writer(function: KernelList, functions: KernelTable) -> Callable[[Tensor, Tensor], bool]:
    """(value, parameter) -> whether the call that computes the value now writes it to the parameter; False, and no
    change, where that is unsafe. A list has one update of a parameter, so that the memory of the other parameters stays
    as it is."""
    steps, aliases = function.steps, Aliases(function.steps)
    made = {t: i for i, step in enumerate(steps) for t in step.results}
    last_read = {memory: readers[-1] for memory, readers in aliases.readers(steps).items()}
    in_objects = {o.tensor for step in steps if isinstance(step, ObjectCall) for o in step.reads}

    def write(value: Tensor, param: Tensor) -> bool:
        index = made.get(value, -1)
        call = steps[index] if index >= 0 else None
        if not isinstance(call, KernelCall) or not same_shape(value.shape, param.shape):
            return False
        # An object that is made of the value may be the parameter, and may be returned.
        if last_read.get(param.memory, -1) > index or value in in_objects:
            return False
        operands = [o for o in call.reads if param.memory in aliases.of(o.tensor)]
        if operands:
            changed = functions.write_over(call, value, operands[0]) if len(operands) == 1 else None
            if changed is None or operands[0].tensor is not param:
                return False
            steps[index] = changed
        value.memory = param.memory
        return True

    return write


# --- storages ---------------------------------------------------------------------------------------------------------


def write_over_operands(function: KernelList, functions: KernelTable) -> None:
    """Change the calls with the most living bytes, until one cannot be changed."""
    lives = spans(function)
    last = {t: lives[t.memory][1] for t in function.tensors() if t.memory in lives}
    tenants = {t.memory: [t] for t in last}

    def saved_bytes(i: int, call: KernelCall) -> int:
        """Make a call write one more result over an operand; the bytes that this saves, 0 if it is not possible."""
        plain = [t for p, t in call.writes.items() if call.arguments[p].tensor is t and t.memory.kind == PLANNED]
        for result in sorted(plain, key=lambda t: -t.bytes):
            for operand in call.reads:
                read = operand.tensor
                if read.bytes == result.bytes > 0 and read.memory.kind == PLANNED and last[read] == i:
                    changed = functions.write_over(call, result, operand)
                    if changed is not None:
                        function.steps[i] = changed
                        moved = tenants.pop(result.memory)
                        tenants[read.memory] += moved
                        for tensor in moved:
                            tensor.memory = read.memory
                        return result.bytes
        return 0

    pending = [(-live, i) for i, live in enumerate(live_bytes(function))]
    heapq.heapify(pending)
    while pending:
        live, i = pending[0]
        call = function.steps[i]
        saved = saved_bytes(i, call) if isinstance(call, KernelCall) else 0
        if not saved:
            break
        heapq.heapreplace(pending, (live + saved, i))


def assign_memory(function: KernelList, *, arena: bool) -> None:
    """Give planned memory its storage and offset.

    arena: put all tensors into one storage, with offsets."""
    _share_symbolic(function)
    sizes, lives = memory_sizes(function), spans(function)
    if not sizes:
        return
    function.storages, places = (_packed if arena else _shared)(list(sizes.values()), [lives[m] for m in sizes])
    for memory, (storage, offset) in zip(sizes, places, strict=True):
        memory.storage, memory.offset = storage, offset


def planned_bytes(planned: Sequence[KernelList], functions: KernelTable) -> PlannedBytes:
    """The allocations of planned lists."""
    calls = [call for function in planned for call in function.calls]
    owned = {t.memory: t for call in calls for t in call.results if t.memory.kind == OWN}.values()
    return PlannedBytes(
        sum(sum(function.storages) for function in planned),
        sum(t.bytes for t in owned),
        max((functions.workspace(c.function) for c in calls if not c.packed), default=0),
        sum(not t.is_static for t in owned),
    )


def _share_symbolic(function: KernelList) -> None:
    """Let tensors of equal symbolic sizes that live one after the other share memory."""
    results = {operand.tensor.memory for operand in leaves(function.result)}
    lives = spans(function, OWN)
    free: dict[tuple[str, str], list[tuple[int, Memory]]] = {}
    tensors = [t for t in function.tensors() if t.memory in lives and t.memory not in results and not t.is_static]
    for tensor in tensors:
        first, last = lives[tensor.memory]
        rows = free.setdefault((str(tensor.shape), tensor.dtype), [])
        if rows and rows[0][0] < first:
            tensor.memory = rows.pop(0)[1]
        insort(rows, (last, tensor.memory), key=lambda row: row[0])


def _shared(sizes: Sequence[int], spans: Sequence[Span]) -> tuple[list[int], list[tuple[int, int]]]:
    """The bytes of storages, and for each tensor its storage and offset 0. The better of two searches, by bytes: the
    first, or the last, of the storages that are free while a tensor lives."""
    order = sorted(range(len(sizes)), key=lambda t: -sizes[t])
    plans = [_searched(sizes, spans, order, end) for end in (0, -1)]
    storages, places = min(plans, key=lambda plan: sum(plan[0]))
    return storages, [(places[t], 0) for t in range(len(sizes))]


def _searched(
    sizes: Sequence[int], spans: Sequence[Span], order: Sequence[int], end: int
) -> tuple[list[int], dict[int, int]]:
    """The bytes of storages, and the storage of each tensor. end: 0 for the first free storage, -1 for the last."""
    storages: list[int] = []

    def place(t: int, taken: Any) -> tuple[int, int]:
        free = np.ones(len(storages), bool)
        free[taken[0]] = False
        found = np.flatnonzero(free)
        if len(found):
            return int(found[end]), 0
        storages.append(max(sizes[t], 1))
        return len(storages) - 1, 0

    return storages, _places(spans, order, place)


def _packed(sizes: Sequence[int], spans: Sequence[Span]) -> tuple[list[int], list[tuple[int, int]]]:
    """The bytes of one storage, and for each tensor that storage and its offset. The better of two searches, by bytes:
    in order of size, and of size times length of life."""
    rounded = [-(-max(size, 1) // _GRAIN) * _GRAIN for size in sizes]

    def place(t: int, taken: Any) -> tuple[int, int]:
        """The smallest gap that fits among the tensors that live at the same time."""
        starts, ends = taken[:, np.argsort(taken[0], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate(([0], ends)))
        gaps = starts - ends[:-1]
        fitting = np.flatnonzero(gaps >= rounded[t])
        offset = int(ends[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ends[-1])
        return offset, offset + rounded[t]

    by_size = sorted(range(len(sizes)), key=lambda t: -rounded[t])
    by_life = sorted(by_size, key=lambda t: -rounded[t] * (spans[t][1] - spans[t][0] + 1))
    plans = [_places(spans, order, place) for order in (by_size, by_life)]
    totals = [max(offset + rounded[t] for t, offset in plan.items()) for plan in plans]
    offsets = plans[totals.index(min(totals))]
    return [min(totals)], [(0, offsets[t]) for t in range(len(sizes))]


def _places(
    spans: Sequence[Span], order: Sequence[int], place: Callable[[int, Any], tuple[int, int]]
) -> dict[int, int]:
    """The first number of the place of each tensor. place: (tensor, places of earlier tensors that live at the same
    time) -> the two numbers of its place."""
    taken = np.empty((4, len(order)), np.int64)  # the place, the first and the last use
    for count, t in enumerate(order):
        first, last = spans[t]
        earlier = taken[:, :count]
        taken[:, count] = *place(t, earlier[:2, (earlier[2] <= last) & (earlier[3] >= first)]), first, last
    return dict(zip(order, taken[0].tolist(), strict=True))
