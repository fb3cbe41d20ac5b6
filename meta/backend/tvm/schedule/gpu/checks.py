"""Checks of scheduled CUDA functions: TVM compiles schedules that violate them without an error, to wrong or serial
kernels."""

from __future__ import annotations

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
    statements_on_device: list[bool] = []

    def visit(statement: tvm.Object, in_threads: bool, host_loop_free: bool) -> None:
        if isinstance(statement, tvm.For):
            is_bound = statement.kind == tvm.tirx.ForKind.THREAD_BINDING
            runs_once = isinstance(statement.extent, tvm.IntImm) and int(statement.extent) == 1
            is_meant = in_threads or is_bound or runs_once or LAUNCHES in statement.annotations
            visit(statement.body, in_threads or is_bound, host_loop_free and is_meant)
        elif isinstance(statement, tvm.SeqStmt):
            for part in statement.seq:
                visit(part, in_threads, host_loop_free)
        elif isinstance(statement, tvm.SBlockRealize):
            visit(statement.block.body, in_threads, host_loop_free)
        elif isinstance(statement, tvm.tirx.IfThenElse):
            visit(statement.then_case, in_threads, host_loop_free)
            if statement.else_case is not None:
                visit(statement.else_case, in_threads, host_loop_free)
        elif not isinstance(statement, tvm.tirx.AllocBuffer):
            statements_on_device.append(in_threads and host_loop_free)

    visit(func.body, False, True)
    return all(statements_on_device)


def serial_work(func: tvm.PrimFunc) -> int:
    """The most iterations of a kernel that has fewer threads than two blocks may have, 0 if every kernel has more.

    dlight's rules put a reduction to one element and every block that reads it into one block of threads, however many
    elements the others have."""
    few, work = 2 * MAX_THREADS, 0

    def visit(statement: tvm.Object, threads: int, iterations: int) -> None:
        nonlocal work
        if isinstance(statement, tvm.For):
            extent = int(statement.extent) if isinstance(statement.extent, tvm.IntImm) else None
            is_bound = statement.kind == tvm.tirx.ForKind.THREAD_BINDING
            if extent is None:
                threads, extent = (few if is_bound else threads), 1
            visit(statement.body, threads * extent if is_bound else threads, iterations * (1 if is_bound else extent))
        elif isinstance(statement, tvm.SeqStmt):
            for part in statement.seq:
                visit(part, threads, iterations)
        elif isinstance(statement, tvm.SBlockRealize):
            visit(statement.block.body, threads, iterations)
        elif isinstance(statement, tvm.tirx.IfThenElse):
            for case in (statement.then_case, statement.else_case):
                if case is not None:
                    visit(case, threads, iterations)
        elif isinstance(statement, tvm.BufferStore) and threads < few:
            work = max(work, threads * iterations)

    visit(func.body, 1, 1)
    return work


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
        if loop.kind == tvm.tirx.ForKind.THREAD_BINDING:
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
