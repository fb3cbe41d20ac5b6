"""Memory of arrays: TVM-FFI tensors made from, and seen as, NumPy arrays and DLPack exporters, without copies.

An allocation is always compact and row-major. Foreign memory is shared when it is compact, writable and in native byte
order; on the CPU it may start at any address (kernels are built for that), on other devices at a multiple of 64 bytes.
Memory that does not qualify is copied once, here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.backend.memory import allocation
from meta.backend.tvm.runtime import ffi
from meta.device import CPU, Device, device
from meta.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from meta.backend.cuda.pool import MemoryStats

ALIGNMENT = 64
"""Of the memory that is shared with other devices than the CPU."""

_CPU_KINDS = (1, 3)  # DLPack: CPU, and CUDA's host memory
_KIND_OF_DLPACK = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


def require(on: Device) -> None:
    """Raise DeviceError when this machine does not have the device."""
    if on is not CPU:
        allocation.tvm_device(on)


def empty(shape: tuple[int, ...], dtype: str, on: Device = CPU) -> Any:
    """An uninitialised tensor. Raises DeviceError when the device is not there or is out of memory."""
    return allocation.empty(shape, dtype, on)


def from_numpy(array: Any, copy: bool = False) -> Any:
    """A CPU tensor over the memory of a NumPy array of a supported dtype: shared when compact and writable, else
    copied."""
    import numpy as np

    tvm_ffi = ffi()
    dtype = dtypes.canonical(array.dtype)
    if copy or not _sharable(array):
        array = np.array(array, dtypes.to_numpy(dtype), order="C", copy=True)
    if dtype != "bfloat16":
        return _compact(tvm_ffi.from_dlpack(array), array.shape, dtype)
    return view(tvm_ffi.from_dlpack(array.view(np.uint16)), tuple(array.shape), "bfloat16")


def _sharable(array: Any) -> bool:
    flags = array.flags
    return bool(flags.c_contiguous and flags.writeable and flags.aligned and array.dtype.isnative)


def _compact(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """The same memory with the strides that kernels check for: others may give anything for axes of size 1."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(tuple(data.strides)), strict=True):
        if stride != expected:
            return view(data, tuple(shape), dtype)
        expected *= size
    return data


def host_array(data: Any, dtype: Any) -> Any:
    """`data` (numbers, nests of them, or an array) as a NumPy array of `dtype`; Python floats are float32 without one.

    Raises ArgumentError for data that is ragged, no numbers, or Python integers that `dtype` does not hold."""
    import numpy as np

    try:
        host = np.asarray(data)
    except ValueError as error:
        wrong = f"cannot make an array: {error}"
        raise ArgumentError("array", wrong, "numbers in equal-length lists") from None
    kind: Any = host.dtype
    if kind.kind in "OSU":
        what = "integers beyond 64 bits" if _is_int(host) else "text" if kind.kind in "SU" else "objects"
        raise ArgumentError(
            "array", f"{type(data).__name__} holds {what}", "numbers in equal-length lists of a supported dtype"
        )
    foreign = hasattr(data, "dtype")
    if dtype is None and not foreign and kind == np.float64:
        dtype = "float32"
    name = dtypes.canonical(kind.name if dtype is None else dtype, "array")
    wanted = dtypes.to_numpy(name)
    if kind == wanted:
        return host
    if not foreign:
        check_held(host, name)
    return host.astype(wanted)


def _is_int(host: Any) -> bool:
    return host.dtype.kind == "O" and all(isinstance(x, int) for x in host.ravel())


def check_held(host: Any, dtype: str) -> None:
    """Raise ArgumentError unless `dtype`, when it is one of integers, holds the numbers (without their fractions)."""
    if not dtypes.is_int(dtype) or host.dtype == bool:
        return
    low, high = dtypes.int_range(dtype)
    outside = host[~((host >= low) & (host <= high))]
    if outside.size:
        raise ArgumentError(
            "array", f"the number {outside[0]} does not fit into {dtype}", f"{low} to {high}", "use a wider dtype"
        )


def to_numpy(data: Any, dtype: str, shape: tuple[int, ...], on: Device) -> Any:
    """A NumPy array sharing the memory of a CPU tensor; a copy of one on another device."""
    import numpy as np

    if on.kind != "cpu":
        data = allocation.copy_to(data, dtype, CPU)
    if dtype != "bfloat16":
        return np.from_dlpack(data)
    words: Any = np.from_dlpack(allocation.view(data, shape, "uint16"))
    return words.view(dtypes.to_numpy("bfloat16"))


def from_dlpack(exporter: Any) -> tuple[Any, tuple[int, ...], str, Device]:
    """The tensor, shape, dtype and device of any DLPack exporter (torch, NumPy, CuPy, ...); compact memory is shared.

    Raises ArgumentError when `exporter` does not speak DLPack or has a dtype outside meta.dtype.ALL, DeviceError for
    strided memory on a device from a library without `contiguous`."""
    if not hasattr(exporter, "__dlpack__") or not hasattr(exporter, "__dlpack_device__"):
        raise ArgumentError(
            "from_dlpack",
            f"{type(exporter).__name__} has no __dlpack__",
            "a DLPack exporter",
            "use meta.array(...) for other data",
        )
    if hasattr(exporter, "dtype"):
        dtypes.canonical(exporter.dtype, "from_dlpack")
    if getattr(exporter, "requires_grad", False):
        exporter = exporter.detach()
    data = _imported(exporter)
    dtype = dtypes.canonical(str(data.dtype), "from_dlpack")
    shape = tuple(data.shape)
    kind = _KIND_OF_DLPACK.get(int(data.device.dlpack_device_type()), str(data.device))
    return _compact(data, shape, dtype), shape, dtype, device(f"{kind}:{data.device.index}")


def _imported(exporter: Any) -> Any:
    """The exporter's memory as a tensor, or that of a compact copy."""
    tvm_ffi = ffi()
    kind, index = map(int, exporter.__dlpack_device__())
    alignment = 0 if kind in _CPU_KINDS else ALIGNMENT
    if kind not in _CPU_KINDS:
        exporter = _OnStream(exporter, device(f"{_KIND_OF_DLPACK.get(kind, 'cuda')}:{index}"))
    try:
        return tvm_ffi.from_dlpack(exporter, require_alignment=alignment, require_contiguous=True)
    except (ValueError, RuntimeError, BufferError, TypeError) as error:
        # The library that owns strided, misaligned or read-only memory makes the copy.
        if hasattr(exporter, "contiguous") and hasattr(exporter, "clone"):
            return tvm_ffi.from_dlpack(exporter.contiguous().clone())
        return _copied_by_numpy(exporter, error)


class _OnStream:
    """An exporter whose work the current stream waits for."""

    def __init__(self, exporter: Any, on: Device) -> None:
        self._exporter = exporter
        self._stream = allocation.current_stream(on) or 1  # DLPack's name for the default stream

    def __dlpack__(self, **options: Any) -> Any:
        return self._exporter.__dlpack__(**{**options, "stream": self._stream})

    def __dlpack_device__(self) -> Any:
        return self._exporter.__dlpack_device__()

    def contiguous(self) -> Any:
        return self._exporter.contiguous()

    def clone(self) -> Any:
        return self._exporter.clone()


def _copied_by_numpy(exporter: Any, why: Exception) -> Any:
    import numpy as np

    try:
        host: Any = exporter if type(exporter) is np.ndarray else np.from_dlpack(exporter)
        return from_numpy(host, copy=True)
    except (TypeError, ValueError, RuntimeError, BufferError):
        raise DeviceError(
            "from_dlpack", f"cannot import {type(exporter).__name__}: {why}", "compact, writable memory",
                    "copy it in its own library first"
        ) from None  # fmt: skip


def copy_into(source: Any, target: Any) -> None:
    """Copy all elements of one tensor into another of the same type, on any two devices."""
    allocation.copy_into(source, target)


def view(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """The same memory with another shape."""
    return allocation.view(data, shape, dtype)


def viewer(t: Any) -> Any:
    """A function that gives the memory of a tensor the shape of TensorType `t`, as fast as can be."""
    return allocation.viewer(t.shape, t.dtype)


def allocator(t: Any) -> Any:
    """A function of no arguments that allocates an uninitialised tensor of TensorType `t`, as fast as can be."""
    return allocation.allocator(t.shape, t.dtype, t.device)


def stream(on: Device) -> Any:
    """A function of no arguments that gives the stream (a CUDA handle as int) that kernels of this thread run on."""
    return partial(allocation.current_stream, on)


def exported(data: Any, on: Device, theirs: int | None) -> None:
    """Have a consumer's stream, as DLPack names it, wait for the work that makes `data`.

    theirs: None and 1 are the default stream, -1 asks for nothing."""
    if on.kind == "cpu" or theirs == -1:
        return
    from meta.backend.cuda import driver, pool

    other = 0 if theirs in (None, 1) else theirs
    ours = allocation.current_stream(on)
    if other != ours:
        driver.enter(on)
        driver.wait_for(other, ours)
        pool.used_on(data, on, other)


def synchronize(on: Device | str) -> None:
    """Wait until all work given to a device is done; nothing to do for the CPU."""
    allocation.synchronize(device(on))


def device_memory_stats(on: Device | str = "cuda") -> MemoryStats:
    """Bytes in use, cached and reserved on a CUDA device. Raises DeviceError when it is not there."""
    return allocation.memory_stats(device(on))


def empty_cache(on: Device | str = "cuda") -> None:
    """Give the memory of a CUDA device that nothing uses back to the driver. Raises DeviceError when it is not
    there."""
    allocation.pools(device(on)).empty_cache()


@contextmanager
def use_stream(handle: int, on: Device | str = "cuda") -> Generator[None, None, None]:
    """Have kernels of this thread run on a CUDA stream, such as `torch.cuda.Stream().cuda_stream`.

    An array belongs to the stream that it was made on; to use it on another one, have that one wait first."""
    where = device(on)
    before = allocation.set_stream(where, handle)
    try:
        yield
    finally:
        allocation.set_stream(where, before)
