"""Memory for the tensors of a list: which of them share it, and where each lies.

At the peak of memory, a kernel writes its result over an operand that it reads last, where the kernel may (`overlap`).
Tensors that never live at the same time may share memory. In separate storages, each as large as the largest of its
tensors, the machine allocates them itself. In one storage with offsets (an arena) less is wasted; that is for programs
whose memory a caller provides, because kernels take tensors that start where their memory does.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from meta.vm.plan.allocations import PlannedBytes
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import live_bytes, memory_sizes, spans
from meta.vm.plan.kernels import OWN, PLANNED, KernelCall, KernelList, Memory, leaves

Span = tuple[int, int]
"""The positions of the first and the last use of a tensor."""
_GRAIN: Final = 256
"""Bytes that tensors of an arena start at multiples of, as libraries on GPUs expect."""
_SEARCHED: Final = 2000
"""The number of large tensors for which all places are compared; others share memory with tensors of the same size."""


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
    """The bytes of storages, and for each tensor its storage and offset 0. The better of two searches, by bytes."""
    large, small = _by_size(sizes)
    plans = [_searched(sizes, spans, large, order) for order in (iter, reversed)]
    storages, place = min(plans, key=lambda plan: sum(plan[0]))
    for size, rows in _rows(sizes, spans, small):
        for row in rows:
            place.update(dict.fromkeys(row, len(storages)))
            storages.append(size)
    return storages, [(place[t], 0) for t in range(len(sizes))]


def _searched(
    sizes: Sequence[int], spans: Sequence[Span], tensors: Sequence[int], order: Callable[[range], Iterable[int]]
) -> tuple[list[int], dict[int, int]]:
    """Storages for tensors, largest first: each takes the first storage in `order` that is free while it lives."""
    storages: list[int] = []
    occupied: list[list[Span]] = []
    place: dict[int, int] = {}
    for t in tensors:
        first, last = spans[t]
        for i in order(range(len(storages))):
            slot = bisect_left(occupied[i], (first, last))
            if (not slot or occupied[i][slot - 1][1] < first) and (
                slot == len(occupied[i]) or last < occupied[i][slot][0]
            ):
                break
        else:
            i, slot = len(storages), 0
            storages.append(max(sizes[t], 1))
            occupied.append([])
        occupied[i].insert(slot, (first, last))
        place[t] = i
    return storages, place


def _packed(sizes: Sequence[int], spans: Sequence[Span]) -> tuple[list[int], list[tuple[int, int]]]:
    """The bytes of one storage, and for each tensor that storage and its offset. The better of two searches, by bytes:
    in order of size, and of size times length of life."""
    rounded = [-(-max(size, 1) // _GRAIN) * _GRAIN for size in sizes]
    large, small = _by_size(rounded)
    by_life = sorted(large, key=lambda t: -rounded[t] * (spans[t][1] - spans[t][0] + 1))
    total, offsets = min((_offsets(rounded, spans, order) for order in (large, by_life)), key=lambda plan: plan[0])
    for size, rows in _rows(rounded, spans, small):
        for row in rows:
            offsets.update(dict.fromkeys(row, total))
            total += size
    return [total], [(0, offsets[t]) for t in range(len(sizes))]


def _offsets(sizes: Sequence[int], spans: Sequence[Span], order: Sequence[int]) -> tuple[int, dict[int, int]]:
    """The bytes needed, and an offset for each tensor: in order, in the smallest gap that fits among the tensors that
    live at the same time."""
    import numpy as np

    placed = np.empty((4, len(order)), np.int64)  # offset, end, first and last use
    offsets: dict[int, int] = {}
    total = 0
    for count, t in enumerate(order):
        first, last = spans[t]
        earlier = placed[:, :count]
        alive = earlier[:2, (earlier[2] <= last) & (earlier[3] >= first)]
        alive = alive[:, np.argsort(alive[0], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate(([0], alive[1])))
        gaps = alive[0] - ends[:-1]
        fitting = np.flatnonzero(gaps >= sizes[t])
        offset = int(ends[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ends[-1])
        placed[:, count] = offset, offset + sizes[t], first, last
        offsets[t] = offset
        total = max(total, offset + sizes[t])
    return total, offsets


def _by_size(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tensors by size, largest first: those to search places for, and the rest."""
    order = sorted(range(len(sizes)), key=lambda t: -sizes[t])
    return order[:_SEARCHED], order[_SEARCHED:]


def _rows(sizes: Sequence[int], spans: Sequence[Span], tensors: Sequence[int]) -> list[tuple[int, list[list[int]]]]:
    """Sizes, and the tensors of each size in as few rows as possible, whose members live one after the other."""
    by_size: dict[int, list[int]] = {}
    for t in tensors:
        by_size.setdefault(max(sizes[t], 1), []).append(t)
    out: list[tuple[int, list[list[int]]]] = []
    for size, members in by_size.items():
        rows: list[list[int]] = []
        free: list[tuple[int, int]] = []  # the last use of a row, and the row
        for t in sorted(members, key=lambda t: spans[t]):
            if free and free[0][0] < spans[t][0]:
                row = heapq.heappop(free)[1]
                rows[row].append(t)
            else:
                row = len(rows)
                rows.append([t])
            heapq.heappush(free, (spans[t][1], row))
        out.append((size, rows))
    return out
