"""Memory that kernels allocate themselves as tensors of the program, whose plan lets others share it.

A kernel with an intermediate matrix gets it as an argument, a further result that nothing reads.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.vm.plan.functions import Functions
from meta.vm.plan.kernels import KernelCall, KernelList, Operand, Tensor

LEAST_BYTES: Final = 1 << 20
"""Bytes of a buffer, at least."""


def lift_workspaces(function: KernelList, functions: Functions) -> None:
    """Make the large buffers of kernels tensors of the list."""
    lifted: dict[str, tuple[str, list[Any]]] = {}
    for i, call in enumerate(function.steps):
        if not isinstance(call, KernelCall) or call.packed:
            continue
        if call.function not in lifted:
            lifted[call.function] = _lifted(call.function, functions)
        name, buffers = lifted[call.function]
        if buffers:
            tensors = [Tensor("workspace", tuple(int(d) for d in b.shape), str(b.dtype)) for b in buffers]
            writes = call.writes | {len(call.arguments) + i: t for i, t in enumerate(tensors)}
            arguments = (*call.arguments, *map(Operand, tensors))
            function.steps[i] = KernelCall(name, False, arguments, writes, source=call.source or call)


def _lifted(name: str, functions: Functions) -> tuple[str, list[Any]]:
    """The kernel that takes its large buffers as further parameters, and those buffers."""
    func = functions.functions[name]
    buffers = _lasting(func)
    if not buffers:
        return name, []
    return functions.add(f"{name}_in", _with_parameters(func, buffers), functions.kernels.get(name, ())), buffers


def _lasting(func: Any) -> list[Any]:
    """The large buffers of a kernel that several of its loop nests use, which are allocated as a whole."""
    if not any(map(_is_large, _root_buffers(func))):
        return []
    located = tvm.block_transform.PlanAndUpdateBufferAllocationLocation()
    module = located(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    remaining = _root_buffers(module["main"])
    return [b for b in _root_buffers(func) if _is_large(b) and any(b.same_as(r) for r in remaining)]


def _root_buffers(func: Any) -> list[Any]:
    return list(func.body.block.alloc_buffers) if isinstance(func.body, tvm.SBlockRealize) else []


def _is_large(buffer: Any) -> bool:
    if buffer.scope() not in ("", "global") or not all(isinstance(d, tvm.IntImm) for d in buffer.shape):
        return False
    return prod(map(int, buffer.shape)) * itemsize(str(buffer.dtype)) >= LEAST_BYTES


def _with_parameters(func: Any, buffers: list[Any]) -> Any:
    """A kernel that takes some of its buffers as further parameters."""
    root = func.body.block
    own_buffers = [b for b in root.alloc_buffers if not any(b.same_as(x) for x in buffers)]
    block = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body, root.init, own_buffers, root.match_buffers,
        root.annotations,
    )  # fmt: skip
    body = tvm.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tvm.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs)
