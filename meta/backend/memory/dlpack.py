"""Arrays of other libraries through DLPack, in both directions.

Compact, writable memory is shared; on devices other than the CPU it must start at a multiple of 64 bytes. The library
that owns other memory copies it."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.cuda import driver, memory_pool, streams
from meta.backend.memory.allocation import ALIGNMENT, copy_to, view
from meta.backend.memory.numpy_arrays import from_numpy, reset_strides
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import runtime
from meta.backend.tvm.runtime import ffi
from meta.device import CPU, Device, device
from meta.errors import ArgumentError, DeviceError, ExportError
from meta.ir.type import TensorType

_CPU = 1  # DLPack's number
_KIND_OF_DLPACK = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


def from_dlpack(exporter: Any) -> tuple[Any, tuple[int, ...], str, Device]:
    """The tensor, shape, dtype and device of any DLPack exporter (torch, NumPy, CuPy, ...); compact memory is shared.

    Raises ArgumentError if `exporter` does not implement DLPack or has a dtype outside meta.dtype.ALL, and DeviceError
    for strided memory on a device from a library without `contiguous`."""
    if not hasattr(exporter, "__dlpack__") or not hasattr(exporter, "__dlpack_device__"):
        raise ArgumentError(
            "from_dlpack",
            f"{type(exporter).__name__} has no __dlpack__",
            "a DLPack exporter",
            "use meta.array(...) for other data",
        )
    dtype = dtypes.canonical(exporter.dtype, "from_dlpack") if hasattr(exporter, "dtype") else ""
    if getattr(exporter, "requires_grad", False):
        exporter = exporter.detach()
    # Lazy conjugates and negatives of torch, which the protocol does not know.
    if hasattr(exporter, "resolve_conj") and (exporter.is_conj() or exporter.is_neg()):
        exporter = exporter.resolve_conj().resolve_neg()
    data = _import_tensor(exporter)
    dtype = dtype or dtypes.canonical(runtime.dtype_name(data), "from_dlpack")
    shape = tuple(data.shape)
    kind = _KIND_OF_DLPACK.get(int(data.device.dlpack_device_type()), str(data.device))
    memory = view(data, shape, dtype) if dtypes.is_complex(dtype) else reset_strides(data, shape, dtype)
    return memory, shape, dtype, device(f"{kind}:{data.device.index}")


def _import_tensor(exporter: Any) -> Any:
    """The exporter's memory, or a compact copy of it, as a tensor."""
    cpu_kinds = (_CPU, 3)  # and CUDA's host memory
    tvm_ffi = ffi()
    kind, index = map(int, exporter.__dlpack_device__())
    alignment = 0 if kind in cpu_kinds else ALIGNMENT
    if hasattr(exporter, "contiguous"):  # a refusal by tvm-ffi takes longer than the copy
        exporter = exporter.contiguous()
    if kind not in cpu_kinds:
        exporter = _OrderedExporter(exporter, device(f"{_KIND_OF_DLPACK.get(kind, 'cuda')}:{index}"))
    try:
        return tvm_ffi.from_dlpack(exporter, require_alignment=alignment, require_contiguous=True)
    except (ValueError, RuntimeError, BufferError, TypeError) as error:
        # The library that owns misaligned or read-only memory makes the copy.
        if hasattr(exporter, "clone"):
            return tvm_ffi.from_dlpack(exporter.clone())
        return _copy_by_numpy(exporter, error)


class _OrderedExporter:
    """An exporter whose pending work the current stream waits for."""

    def __init__(self, exporter: Any, on: Device) -> None:
        self._exporter = exporter
        self._stream = streams.current_stream(on) or 1  # DLPack's number of the default stream

    def __dlpack__(self, **options: Any) -> Any:
        return self._exporter.__dlpack__(**{**options, "stream": self._stream})

    def __dlpack_device__(self) -> Any:
        return self._exporter.__dlpack_device__()

    def clone(self) -> Any:
        return self._exporter.clone()


def _copy_by_numpy(exporter: Any, error: Exception) -> Any:
    import numpy as np

    try:
        host: Any = exporter if type(exporter) is np.ndarray else np.from_dlpack(exporter)
        return from_numpy(host, copy=True)
    except (TypeError, ValueError, RuntimeError, BufferError):
        raise DeviceError(
            "from_dlpack", f"cannot import {type(exporter).__name__}: {error}", "compact, writable memory",
                    "copy it in its own library first"
        ) from None  # fmt: skip


def exported(
    data: Any, type: TensorType, stream: Any, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None
) -> Any:
    """A DLPack capsule of a tensor of `type`, for the arguments of the standard's `__dlpack__`.

    Raises ExportError for a device that is neither the tensor's nor the CPU, and for one that needs the copy that
    `copy=False` forbids."""
    target = type.device
    if dl_device is not None and tuple(map(int, dl_device)) != tuple(map(int, data.__dlpack_device__())):
        if int(dl_device[0]) != _CPU:
            raise ExportError(
                "dlpack",
                f"the array is on {target} and dl_device is {tuple(dl_device)}",
                "the device of the array, or (1, 0), the CPU",
                "move the array first: x.to(...)",
            )
        target = CPU
    moved = target is not type.device
    if moved and copy is False:
        raise ExportError("dlpack", f"dl_device is the CPU and the array is on {type.device}", "copy=None or True")
    if moved or copy:
        data = copy_to(data, target)
    if target.kind != "cpu":
        make_consumer_wait(data, target, stream)
    if dtypes.is_complex(type.dtype):  # other libraries get complex numbers instead of pairs of floats
        kind = runtime.complex_type(dtypes.itemsize(type.dtype) * 8)
        data = tvm.create_view(data, tvm.Shape(type.shape), kind, 0)
    if max_version is None or max_version[0] < 1:
        return data.__dlpack__()
    return data.__dlpack__(max_version=max_version)


def make_consumer_wait(data: Any, on: Device, consumer: int | None) -> None:
    """Have the consumer's stream wait for the work that computes `data`.

    consumer: a stream by DLPack's numbers: None and 1 are the default stream, -1 needs no wait."""
    if on.kind == "cpu" or consumer == -1:
        return
    stream = 0 if consumer in (None, 1) else consumer
    producer = streams.current_stream(on)
    if stream != producer:
        driver.set_device(on)
        driver.make_stream_wait(stream, producer)
        memory_pool.record_stream(data, on, stream)
