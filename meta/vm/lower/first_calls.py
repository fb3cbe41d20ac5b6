"""First calls of the library kernels of a program for a GPU, while other processes compile its other kernels.

In its first call, a convolution of cuDNN measures plans, an attention in Triton is compiled, and a product starts
cuBLAS. Later calls, those of the program among them, use what was found.
"""

from __future__ import annotations

from contextlib import suppress

from meta import dtype as dtypes
from meta.backend.cuda import memory_pool
from meta.backend.memory import allocation
from meta.vm.lower.choose import Choice
from meta.vm.lower.dispatched import Source


def run_first_calls(source: Source) -> None:
    """Call each kernel with a slow start (see `Implementation`) once, on uninitialised tensors.

    Where that fails, for lack of memory for instance, the program's own call comes first, and reports the error."""
    if source.device.kind == "cpu":
        return
    slow = [c for c in source.choices.packed().values() if c.implementation.slow_start and _takes_any_values(c)]
    for choice in slow:
        with suppress(Exception):
            _call(choice)
    if slow:
        memory_pool.empty_cache(source.device)  # the program's tensors have other sizes


def _takes_any_values(choice: Choice) -> bool:
    """Whether the operands are floats of known sizes, and none of them is a position."""
    tensors = (*choice.info.tensors(), *choice.info.outputs())
    return not choice.checked and all(t.is_static and t.dtype in dtypes.FLOATS for t in tensors)


def _call(choice: Choice) -> None:
    info, implementation = choice.info, choice.implementation
    tensors = [allocation.allocator(t)() for t in (*info.tensors(), *info.outputs())]
    implementation.dialect.kernel(implementation, info)(*tensors)
