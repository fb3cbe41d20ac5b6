"""Arrays of other libraries through DLPack, in both directions.

Compact, writable memory is shared; on devices other than the CPU it must start at a multiple of 64 bytes. Other memory
is copied by the library that owns it."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.cuda import driver, pool, streams
from meta.backend.memory.numpy_arrays import compact, from_numpy
from meta.backend.tvm.runtime import ffi
from meta.device import Device, device
from meta.errors import ArgumentError, DeviceError

ALIGNMENT = 64
"""Of the memory that is shared with other devices than the CPU."""

_CPU_KINDS = (1, 3)  # DLPack: CPU, and CUDA's host memory
_KIND_OF_DLPACK = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


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
    return compact(data, shape, dtype), shape, dtype, device(f"{kind}:{data.device.index}")


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
        self._stream = streams.current_stream(on) or 1  # DLPack's name for the default stream

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


def make_consumer_wait(data: Any, on: Device, theirs: int | None) -> None:
    """Have a consumer's stream, as DLPack names it, wait for the work that makes `data`.

    theirs: None and 1 are the default stream, -1 asks for nothing."""
    if on.kind == "cpu" or theirs == -1:
        return
    other = 0 if theirs in (None, 1) else theirs
    ours = streams.current_stream(on)
    if other != ours:
        driver.enter(on)
        driver.wait_for(other, ours)
        pool.used_on(data, on, other)
