"""The Triton dialect: attention, and kernels that a program registers as functions that launch Triton kernels on torch
tensors.

    triton_dialect = meta.dialect("triton")

    @triton_dialect.implement("tanh", accepts=...)
    def tanh(x, *, out):
        tanh_kernel[grid](x, out, x.numel(), BLOCK=1024)

    triton_dialect.implement("celu", pointwise(celu_of_a_number))    # from a @triton.jit function of numbers

All of them run on the current stream of the thread, eagerly, in programs and CUDA graphs.
With TRITON_INTERPRET=1 in the environment, kernels run in Triton's interpreter, on the CPU too: for tests. Optional.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

from meta.device import Device
from meta.errors import install_hint
from meta.op.function_dialect import FunctionDialect, function_kernel

_INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def _probe() -> str | None:
    for package in ("triton", "torch"):
        if find_spec(package) is None:
            return f"{package} is not installed: {install_hint('triton')}"
    if _INTERPRETED:
        return None
    from meta.backend.cuda import driver

    reason = driver.probe()
    if reason is not None:
        return reason
    from meta.backend.torch.bridge import has_cuda

    return None if has_cuda() else "torch is built without CUDA"


def _private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    from meta.backend.torch.bridge import private_memory

    return private_memory(on)


def pointwise(expression: Any, *, block: int = 1024, num_warps: int = 4) -> Any:
    """An elementwise implementation from a `@triton.jit` function of numbers, which broadcasts its operands.

    expression: a function of the operator's arguments in schema order that returns one number, or a tuple with one for
        each result. Operands in half precision arrive as float32. If the result is floating, integers arrive in its
        dtype, and booleans too unless another operand is floating. Numbers among the arguments arrive as such, and as
        constants where the parameter is annotated with `tl.constexpr` or the computation is in float64; any other
        argument arrives as a constant. What it returns is cast to the dtype of the result.
    block: elements of a program (a thread block), a power of two.  num_warps: its warps.
    Raises ArgumentError for anything but a function compiled by `triton.jit`, and for a `block` of another size."""
    from meta.backend.triton.pointwise import pointwise

    return pointwise(expression, block=block, num_warps=num_warps)


_DEVICES = frozenset({"cpu", "cuda"} if _INTERPRETED else {"cuda"})
DIALECT = FunctionDialect("triton", _DEVICES, 20, _probe, function_kernel, _private_memory, tensors="torch")
