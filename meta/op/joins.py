"""Kernels that join long lists of tensors by kernels that join short ones.

A kernel of TVM for n tensors takes n parameters, and chooses among them for each element; one that serves all shapes
also adds up n sizes. Its compilation takes time that grows faster than n, for each n anew. A list is therefore joined
in parts, by at most two kinds of kernels, and the parts are joined likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from meta.backend.memory import allocation
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType
from meta.op.dispatch import Kernel
from meta.op.registry import get


def join_in_parts(call: CallInfo, most: int, kernel_of: Callable[[CallInfo], Kernel]) -> Kernel:
    """The kernel of a concatenation or a stack of more than `most` tensors, over (inputs..., output).

    kernel_of: the kernel of a call of at most `most` tensors."""
    (result,) = call.outputs()
    axis = call.args[1] % result.ndim
    inputs: tuple[TensorType, ...] = call.args[0]
    chunks = [inputs[i : i + most] for i in range(0, len(inputs), most)]
    parts = [_call(call, call.op, chunk, axis) for chunk in chunks]
    types = tuple(part.outputs()[0] for part in parts)
    last = kernel_of(_call(call, get("concatenate"), types, axis))
    kernels = list(map(kernel_of, parts))
    allocators = list(map(allocation.allocator, types))

    def run(*tensors: object) -> None:
        *operands, out = tensors
        joined: list[Any] = []
        for number, (kernel, allocate) in enumerate(zip(kernels, allocators, strict=True)):
            joined.append(allocate())
            kernel(*operands[number * most : (number + 1) * most], joined[-1])
        last(*joined, out)

    return run


def _call(call: CallInfo, op: Any, inputs: Sequence[TensorType], axis: int) -> CallInfo:
    args = (tuple(inputs), axis)
    return replace(call, op=op, args=args, out=op.infer(args))
