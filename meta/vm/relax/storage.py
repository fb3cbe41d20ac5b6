"""Memory for the tensors of a program: which of them share it, and where each lies.

Tensors that never live at the same time may share memory. In separate storages, each as large as the largest of its
tensors, the machine allocates them itself. In one storage with offsets (an arena) less is wasted; that is for programs
whose memory a caller provides, because kernels take tensors that start where their memory does.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import Lifetimes, lifetimes
from meta.vm.relax.steps import op_name

Span = tuple[int, int]
"""The positions of the first and the last use of a tensor."""
_GRAIN: Final = 256
"""Bytes that tensors of an arena start at multiples of, as libraries on GPUs expect."""
_SEARCHED: Final = 2000
"""The number of large tensors for which all places are compared; others share the memory of those of their size."""


def assign_memory(module: Any, *, arena: bool) -> Any:
    """`module` with storages for all tensors. Where "main" branches, calls other functions or has symbolic sizes, the
    plan is TVM's.

    arena: put the tensors of "main" into one storage, with offsets."""
    lives = lifetimes(module)
    is_planned = lives is not None and bool(lives.tensors)
    others = sum(isinstance(f, tvm.RelaxFunction) for f in module.functions.values()) - 1
    # TVM's plan takes a second for 10,000 kernels.
    planned = module if is_planned and not others else tvm.relax_transform.StaticPlanBlockMemory()(module)
    if lives is None or not is_planned:
        return planned
    name = next(v for v in planned.get_global_vars() if v.name_hint == "main")
    functions = dict(planned.functions.items())
    sizes, places = (_packed if arena else _shared)(lives.sizes, lives.spans())
    functions[name] = _with_storages(module["main"], lives, sizes, places)
    return tvm.relax_transform.Normalize()(tvm.IRModule(functions, attrs=planned.attrs))


def _with_storages(main: Any, lives: Lifetimes, sizes: Sequence[int], places: Sequence[tuple[int, int]]) -> Any:
    """`main` with the tensors in storages. sizes: their bytes.  places: tensor -> storage and offset."""
    memory = tvm.relax.op.memory
    of_tensor = dict(zip(lives.tensors, places, strict=True))
    storages: dict[int, Any] = {}
    bindings: list[Any] = []
    for step in lives.steps.list:
        if step.var not in of_tensor or op_name(step.value) != "relax.builtin.alloc_tensor":
            bindings.append(step.binding)
            continue
        storage, offset = of_tensor[step.var]
        if storage not in storages:
            call = memory.alloc_storage(tvm.ShapeExpr([sizes[storage]]), 0, "global", "uint8")
            storages[storage] = tvm.RelaxVar(f"storage{storage}", call.ty)
            bindings.append(tvm.VarBinding(storages[storage], call))
        shape, dtype = step.value.args[0], str(step.value.args[1].value)
        call = memory.alloc_tensor(storages[storage], offset, shape, dtype)
        bindings.append(tvm.VarBinding(step.var, call))
    body = tvm.SeqExpr([tvm.BindingBlock(bindings)], main.body.body)
    return tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)


def _shared(sizes: Sequence[int], spans: Sequence[Span]) -> tuple[list[int], list[tuple[int, int]]]:
    """The bytes of storages, and for each tensor its storage and offset 0. Of two searches, the one that needs less."""
    large, small = _by_size(sizes)
    plans = [_searched(sizes, spans, large, order) for order in (iter, reversed)]
    storages, place = min(plans, key=lambda plan: sum(plan[0]))
    for size, rows in _rows(sizes, spans, small):
        for row in rows:
            place.update(dict.fromkeys(row, len(storages)))
            storages.append(size)
    return storages, [(place[t], 0) for t in range(len(sizes))]


def _searched(
    sizes: Sequence[int], spans: Sequence[Span], tensors: Sequence[int], order: Callable[[Any], Any]
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
    """The bytes of one storage, and for each tensor that storage and its offset. Of two searches, the one that needs
    less: by size, and by size times length of life."""
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
