"""What a CUDA schedule must hold to, as TVM does not say where it is broken: such kernels are built, and wrong."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks


def on_device(func: Any) -> bool:
    """Whether no loop that touches memory is left to the host, which would start a kernel in each iteration (and none,
    not even the one that sets the result, where there are no iterations)."""
    touched: list[bool] = []

    def visit(statement: Any, inside: bool, alone: bool) -> None:
        """inside: of a loop bound to threads.  alone: no loop of the host is around it."""
        if isinstance(statement, tvm.For):
            bound = statement.kind == tvm.tirx.ForKind.THREAD_BINDING
            once = isinstance(statement.extent, tvm.IntImm) and int(statement.extent) == 1
            visit(statement.body, inside or bound, alone and (inside or bound or once))
        elif isinstance(statement, tvm.SeqStmt):
            for part in statement.seq:
                visit(part, inside, alone)
        elif isinstance(statement, tvm.SBlockRealize):
            visit(statement.block.body, inside, alone)
        elif isinstance(statement, tvm.tirx.IfThenElse):
            visit(statement.then_case, inside, alone)
            if statement.else_case is not None:
                visit(statement.else_case, inside, alone)
        else:
            touched.append(inside and alone)

    visit(func.body, False, True)
    return all(touched)


def without_races(func: Any) -> bool:
    """Whether TVM sees every reduction that threads share for what it is, and not, as with some conditions on the
    elements, for a loop whose iterations all add to one place."""
    try:
        lowered = tvm.s_tir.transform.LowerCrossThreadReduction()(tvm.IRModule({"main": func}))["main"]
    except (tvm.TVMError, ValueError):
        return False  # it cannot share what this one reduces with
    threads: list[Any] = []
    kinds = tvm.tirx.ForKind

    def loop(node: Any) -> None:
        if node.kind == kinds.THREAD_BINDING:
            threads.append(node.loop_var)

    tvm.structural_walk(lowered.body, (tvm.For, loop))
    races: list[Any] = []

    def realized(node: Any) -> None:
        reduced = [value for value, v in zip(node.iter_values, node.block.iter_vars, strict=True)
                   if int(v.iter_type) == blocks.REDUCE]  # fmt: skip
        if node.block.init is not None and any(blocks.uses(value, t) for value in reduced for t in threads):
            races.append(node)

    tvm.structural_walk(lowered.body, (tvm.SBlockRealize, realized))
    return not races
