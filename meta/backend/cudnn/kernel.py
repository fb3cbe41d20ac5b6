"""Kernels of the cuDNN dialect: a payload is a function `call -> run(*inputs, *outputs)` on raw tensors. Also checks of
calls and constants on the device, which the families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from meta import dim
from meta import dtype as dtypes
from meta.backend.cuda import driver as cuda
from meta.backend.cuda import streams
from meta.backend.cudnn.c_functions import StatusError
from meta.backend.memory import allocation, numpy_arrays
from meta.device import Device
from meta.errors import KernelError
from meta.ir.type import TensorType

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Run = Callable[..., None]
Payload = Callable[["CallInfo"], Run]

FLOATS = ("float32", "float64", "float16", "bfloat16")


def kernel(payload: Payload, call: CallInfo) -> Run:
    """The payload's kernel for a call. This function and the kernel raise KernelError if cuDNN reports an error."""
    try:
        run = payload(call)
    except StatusError as error:
        raise failure(call, error) from None

    def checked(*raw: Any) -> None:
        try:
            run(*raw)
        except StatusError as error:
            raise failure(call, error) from None

    return checked


def failure(call: CallInfo, error: StatusError) -> KernelError:
    """The KernelError for an operator call that cuDNN failed."""
    arguments = ", ".join(f"{name}={_format(value)}" for name, value in call.bind().items())
    return KernelError(
        call.op.name,
        f"{error} for {arguments}",
        "calls that cuDNN supports",
        'run it elsewhere: with meta.with_dialect(["torch", "tvm"])',
    )


def _format(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, TensorType) else repr(value)


def unsupported_tensors(call: CallInfo, allowed: Sequence[str] = FLOATS) -> str | None:
    """Why cuDNN supports no operator on these tensors (symbolic or empty shape, dtype, size), or None."""
    max_size = 2**31  # Number of elements from which strides overflow the C API's 32 bits.
    for t in (*call.tensors(), *call.outputs()):
        if not t.is_static:
            return f"the shape {t.shape} is symbolic: cuDNN needs static sizes"
        if t.dtype not in allowed:
            return f"dtype {t.dtype} is not one of {', '.join(allowed)}"
        size: Any = t.size
        if size == 0:
            return "an empty tensor"
        if size >= max_size:
            return f"{size} elements: cuDNN counts them in 32 bits"
    return None


@cache
def constant_vector(value: float, count: int, dtype: str, device: Device) -> Any:
    """A cached, read-only vector of `count` equal elements on a device."""
    import numpy as np

    host = numpy_arrays.from_numpy(np.full((count,), value, dtypes.to_numpy(dtype)))
    out = allocation.empty((count,), dtype, device)
    allocation.copy_into(host, out)
    cuda.synchronize(streams.stream_getter(device)())
    return out


def product(sizes: Sequence[Any]) -> int:
    """The product of static sizes."""
    out = 1
    for size in sizes:
        out *= int(size)
    return out


def around(shape: Sequence[Any], axis: int) -> tuple[int, int, int]:
    """The numbers of elements before, along and after an axis."""
    before, size, after = dim.around(tuple(shape), axis)
    return int(before), int(size), int(after)
