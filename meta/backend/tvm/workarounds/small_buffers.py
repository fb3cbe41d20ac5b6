"""Small buffers of static sizes in parallel loops.

There TVM allocates them on the heap in each iteration, which took ten times as long as the sums of a row of 16 numbers.
It puts others on the stack itself, except those on a GPU between kernels, which stay there.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx

_NOT_ON_HEAP: Final = "disable_lower_builtin"
"""TVM's annotation of buffers that it does not allocate on the heap."""


def on_stack() -> dict[str, Any]:
    """Annotations of a buffer that LLVM moves into registers. On the heap, a value of each element took longer than all
    computations."""
    return {_NOT_ON_HEAP: tvm.IntImm("bool", 1)}


def small_buffers_on_stack(func: tvm.PrimFunc) -> Any:
    """`func` with the small buffers of static sizes in its parallel loops on the stack, from where LLVM moves them into
    registers."""
    return tvm.structural_map(func, (tvm.For, _with_buffers_on_stack))


def _with_buffers_on_stack(loop: tvm.For) -> Any:
    is_parallel = int(loop.kind) == tirx.ForKind.PARALLEL
    return tvm.structural_map(loop, (tirx.AllocBuffer, _on_stack)) if is_parallel else loop


def _on_stack(allocation: Any) -> Any:
    max_stack_bytes = 1024  # Bytes below which TVM puts a buffer on the stack.
    buffer = allocation.buffer
    if not all(isinstance(d, tvm.IntImm) for d in buffer.shape):
        return allocation
    bits = prod(map(int, buffer.shape)) * int(tvm.dtype(str(buffer.dtype)).bits)
    if not 0 < bits < 8 * max_stack_bytes:
        return allocation
    return tirx.AllocBuffer(buffer, {**allocation.annotations, **on_stack()})
