"""Checks of scheduled CUDA functions: TVM compiles schedules that violate them without an error, to wrong or serial
kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import prod
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import MAX_THREADS
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.te.loops import LAUNCHES


def runs_on_device(func: tvm.PrimFunc) -> bool:
    """Whether every statement that accesses memory is inside a loop bound to threads and outside loops of the host,
    except those annotated with LAUNCHES.

    TVM starts a kernel in each iteration of a host loop; a loop without iterations starts none, so that not even the
    initial value of a reduction is written."""

    def is_launched(loops: Sequence[Any]) -> bool:
        host = [*takewhile(lambda loop: not _is_bound(loop), loops)]
        return len(host) < len(loops) and all(_extent(loop) == 1 or LAUNCHES in loop.annotations for loop in host)

    return all(is_launched(loops) for _, loops in _accesses(func.body))


def serial_work(func: tvm.PrimFunc) -> int:
    """The most iterations of a kernel that has fewer threads than two blocks may have, 0 if every kernel has more.

    dlight's rules put a reduction to one element and every block that reads it into one block of threads, however many
    elements the others have. A symbolic number of threads counts as enough."""
    enough, work = 2 * MAX_THREADS, 0
    for _, loops in _accesses(func.body):
        threads = prod(_extent(loop) or enough for loop in loops if _is_bound(loop))
        if threads < enough:
            work = max(work, threads * prod(_extent(loop) or 1 for loop in loops if not _is_bound(loop)))
    return work


def _accesses(statement: Any, loops: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The statements that access memory, each with the loops around it, outer ones first."""
    if isinstance(statement, tvm.For):
        yield from _accesses(statement.body, (*loops, statement))
    elif isinstance(statement, tvm.SeqStmt):
        for part in statement.seq:
            yield from _accesses(part, loops)
    elif isinstance(statement, tvm.SBlockRealize):
        yield from _accesses(statement.block.body, loops)
    elif isinstance(statement, tvm.tirx.IfThenElse):
        for case in (statement.then_case, statement.else_case):
            if case is not None:
                yield from _accesses(case, loops)
    elif not isinstance(statement, tvm.tirx.AllocBuffer):
        yield statement, loops


def _is_bound(loop: Any) -> bool:
    """Whether the iterations of a loop are blocks or threads of a kernel."""
    return bool(loop.kind == tvm.tirx.ForKind.THREAD_BINDING)


def _extent(loop: Any) -> int | None:
    """The number of iterations of a loop; None for a symbolic one."""
    return int(loop.extent) if isinstance(loop.extent, tvm.IntImm) else None


def is_race_free(func: tvm.PrimFunc) -> bool:
    """Whether TVM recognises every reduction that is split over threads.

    It lowers a recognised one to shuffles or shared memory. One that it does not recognise, for instance because a
    condition ties its loops together, stays a loop in which all threads add to one address."""
    try:
        lowered = tvm.s_tir.transform.LowerCrossThreadReduction()(tvm.IRModule({"main": func}))["main"]
    except (tvm.TVMError, ValueError):
        return False  # TVM has no lowering across threads for this reducer
    thread_vars: list[Any] = []

    def collect_thread_var(loop: tvm.For) -> None:
        if _is_bound(loop):
            thread_vars.append(loop.loop_var)

    tvm.structural_walk(lowered.body, (tvm.For, collect_thread_var))
    races: list[Any] = []

    def collect_race(realize: tvm.SBlockRealize) -> None:
        reduced = [binding for binding, v in zip(realize.iter_values, realize.block.iter_vars, strict=True)
                   if int(v.iter_type) == blocks.REDUCE]  # fmt: skip
        if realize.block.init is not None and any(blocks.uses_variable(b, t) for b in reduced for t in thread_vars):
            races.append(realize)

    tvm.structural_walk(lowered.body, (tvm.SBlockRealize, collect_race))
    return not races
