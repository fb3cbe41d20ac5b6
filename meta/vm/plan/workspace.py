"""Memory that kernels allocate themselves as tensors of the program, whose plan lets others share it.

A kernel with an intermediate matrix gets it as an argument, a further result that nothing reads.
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm.schedule.buffers import lasting_buffers, with_parameters
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.kernels import KernelCall, KernelList, Operand, Tensor

LEAST_BYTES: Final = 1 << 20
"""Bytes of a buffer, at least."""


def lift_workspaces(function: KernelList, functions: KernelTable) -> None:
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


def _lifted(name: str, functions: KernelTable) -> tuple[str, list[Any]]:
    """The kernel that takes its large buffers as further parameters, and those buffers."""
    func = functions.functions[name]
    buffers = lasting_buffers(func, LEAST_BYTES)
    if not buffers:
        return name, []
    return functions.add(f"{name}_in", with_parameters(func, buffers), functions.kernels.get(name, ())), buffers
