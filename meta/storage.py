"""Memory of arrays: TVM-FFI tensors made from, and seen as, NumPy arrays and DLPack exporters, without copies.

An allocation is always compact and row-major. Foreign memory is shared when it is compact and aligned for the kernels
(64 bytes); otherwise it is copied once, here.
"""

from __future__ import annotations

import ctypes
from typing import Any

from meta import dtype as dtypes
from meta.device import CPU, Device, device
from meta.errors import ArgumentError, DeviceError, message

ALIGNMENT = 64
_KIND_OF_DLPACK = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


def empty(shape: tuple[int, ...], dtype: str, on: Device = CPU) -> Any:
    """An uninitialised tensor. Raises DeviceError when the device is not there or is out of memory."""
    from meta.op.dialect.tvm import _memory

    return _memory.empty(shape, dtype, on)


def from_numpy(array: Any, copy: bool = False) -> Any:
    """A CPU tensor over the memory of a NumPy array: shared when compact, aligned and writable, else copied."""
    import numpy as np
    import tvm_ffi

    dtype = dtypes.canonical(array.dtype)
    if not array.size:  # NumPy gives arrays without elements strides that kernels take for strided memory
        return empty(tuple(array.shape), dtype)
    if copy or not _sharable(array):
        array = _aligned_copy(array)
    if dtype != "bfloat16":
        return tvm_ffi.from_dlpack(array)
    raw = tvm_ffi.from_dlpack(array.view(np.uint16))
    from meta.op.dialect.tvm import _memory

    return _memory.view(raw, tuple(array.shape), "bfloat16")


def _sharable(array: Any) -> bool:
    return bool(array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0)


def _aligned_copy(array: Any) -> Any:
    """A compact copy whose data starts on a 64-byte boundary."""
    import numpy as np

    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    out = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def to_numpy(data: Any, dtype: str, shape: tuple[int, ...], on: Device) -> Any:
    """A NumPy array sharing the memory of a CPU tensor; a copy of one on another device."""
    import numpy as np

    if on.kind != "cpu":
        from meta.op.dialect.tvm import _memory

        data = _memory.copy_to(data, dtype, CPU)
    if dtype != "bfloat16":
        return np.from_dlpack(data)
    count = int(np.prod(shape))
    buffer = (ctypes.c_uint16 * count).from_address(data.data_ptr()) if count else (ctypes.c_uint16 * 0)()
    buffer._keep_alive = data
    return np.frombuffer(buffer, dtype=dtypes.to_numpy("bfloat16")).reshape(shape)


def from_dlpack(exporter: Any) -> tuple[Any, tuple[int, ...], str, Device]:
    """The tensor, shape, dtype and device of any DLPack exporter (torch, NumPy, CuPy, ...); compact memory is shared.

    Raises ArgumentError when `exporter` does not speak DLPack or has a dtype outside meta.dtype.ALL."""
    import tvm_ffi

    if not hasattr(exporter, "__dlpack__"):
        raise ArgumentError(
            message("from_dlpack", f"{type(exporter).__name__} has no __dlpack__", "allowed: a DLPack exporter",
                    "use meta.array(...) for other data")
        )  # fmt: skip
    try:
        data = tvm_ffi.from_dlpack(exporter, require_alignment=ALIGNMENT, require_contiguous=True)
    except (ValueError, RuntimeError, BufferError, TypeError):
        data = _copy_foreign(exporter)
    kind = _KIND_OF_DLPACK.get(int(data.device.dlpack_device_type()), str(data.device))
    return data, tuple(data.shape), dtypes.canonical(str(data.dtype), "from_dlpack"), device(f"{kind}:{data.device.index}")


def _copy_foreign(exporter: Any) -> Any:
    """What cannot be shared (strided, misaligned or read-only memory) is made compact by its own library."""
    if hasattr(exporter, "contiguous") and hasattr(exporter, "clone"):
        import tvm_ffi

        return tvm_ffi.from_dlpack(exporter.detach().contiguous().clone())
    import numpy as np

    try:
        return from_numpy(np.asarray(exporter), copy=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DeviceError(message("from_dlpack", f"cannot import {type(exporter).__name__}: {error}")) from None


def copy_into(source: Any, target: Any) -> None:
    """Copy all elements of one tensor into another of the same type, on any two devices."""
    from meta.op.dialect.tvm import _memory

    _memory.copy_into(source, target)


def view(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """The same memory with another shape."""
    from meta.op.dialect.tvm import _memory

    return _memory.view(data, shape, dtype)


def allocator(t: Any) -> Any:
    """A function of no arguments that allocates an uninitialised tensor of TensorType `t`, as fast as can be."""
    from meta.op.dialect.tvm import _memory

    return _memory.allocator(t.shape, t.dtype, t.device)
