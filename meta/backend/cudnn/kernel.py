"""Kernels of the dialect: a payload is `make(call) -> run(*inputs, *outputs)` on raw tensors. Also what the families
share: checks on calls, constants on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from meta import dim
from meta import dtype as dtypes
from meta.backend.cuda import driver as cuda
from meta.backend.cuda import streams
from meta.backend.cudnn.functions import StatusError
from meta.backend.memory import allocation, numpy_arrays
from meta.device import Device
from meta.errors import KernelError
from meta.ir.type import TensorType

if TYPE_CHECKING:
    from meta.op.dispatch import CallInfo

Run = Callable[..., None]
Maker = Callable[["CallInfo"], Run]

FLOATS = ("float32", "float64", "float16", "bfloat16")
_LARGEST = 2**31
"""Elements from which the C API's 32-bit strides do not reach."""


def kernel(make: Maker, call: CallInfo) -> Run:
    """What `make` returns for the call. Raises KernelError, now or in a call, when cuDNN reports an error."""
    try:
        run = make(call)
    except StatusError as error:
        raise failure(call, error) from None

    def checked(*raw: Any) -> None:
        try:
            run(*raw)
        except StatusError as error:
            raise failure(call, error) from None

    return checked


def failure(call: CallInfo, error: StatusError) -> KernelError:
    """The error of a call of an operator."""
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in call.bind().items())
    return KernelError(
        call.op.name,
        f"{error} for {shown}",
        "calls that cuDNN supports",
        'run it elsewhere: with meta.with_dialect(["torch", "tvm"])',
    )


def _shown(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, TensorType) else repr(value)


def unfit(call: CallInfo, allowed: Sequence[str] = FLOATS) -> str | None:
    """Why a call is not for cuDNN whatever the operator: dtypes, sizes."""
    for t in (*call.tensors(), *call.outputs()):
        if not t.is_static:
            return f"the shape {t.shape} is symbolic: cuDNN describes tensors of known sizes"
        if t.dtype not in allowed:
            return f"dtype {t.dtype}, of {', '.join(allowed)}"
        size: Any = t.size
        if size == 0:
            return "an empty tensor"
        if size >= _LARGEST:
            return f"{size} elements: cuDNN counts them in 32 bits"
    return None


@cache
def filled(value: float, count: int, dtype: str, device: Device) -> Any:
    """A tensor of `count` equal elements on a device, to be read only."""
    import numpy as np

    host = numpy_arrays.from_numpy(np.full((count,), value, dtypes.to_numpy(dtype)))
    out = allocation.empty((count,), dtype, device)
    allocation.copy_into(host, out)
    cuda.synchronize(streams.stream_getter(device)())
    return out


def product(sizes: Sequence[Any]) -> int:
    out = 1
    for size in sizes:
        out *= int(size)
    return out


def around(shape: Sequence[Any], axis: int) -> tuple[int, int, int]:
    """How many elements there are before, along and after an axis."""
    before, size, after = dim.around(tuple(shape), axis)
    return int(before), int(size), int(after)
