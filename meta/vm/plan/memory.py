"""Memory for the tensors of a list: which of them share it, and where each lies.

At the peak of memory, a kernel writes its result over an operand that it reads last, where the kernel may (`overlap`).
Tensors that never live at the same time may share memory. In separate storages, each as large as the largest of its
tensors, the machine allocates them itself. In one storage with offsets (an arena) less is wasted; that is for programs
whose memory a caller provides, because kernels take tensors that start where their memory does.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from meta.vm.plan.allocations import PlannedBytes
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import live_bytes, memory_sizes, spans
from meta.vm.plan.kernels import OWN, PLANNED, KernelCall, KernelList, Memory, leaves

Span = tuple[int, int]
"""The positions of the first and the last use of a tensor."""
_GRAIN: Final = 256
"""Bytes that tensors of an arena start at multiples of, as libraries on GPUs expect."""


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
