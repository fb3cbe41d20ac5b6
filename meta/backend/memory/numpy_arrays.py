"""Tensors from NumPy arrays, and NumPy arrays from tensors.

Both share memory if the array is compact, writable and in native byte order; other arrays are copied. Kernels accept
memory at any address, but products of libraries round differently by how their operands are aligned: copies start where
all other tensors do, at a multiple of 64 bytes, so that equal values give equal bits."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.memory.allocation import ALIGNMENT, copy_to, empty, reporting, view
from meta.backend.tvm.runtime import ffi
from meta.device import CPU, Device
from meta.errors import ArgumentError


def from_numpy(array: Any, copy: bool = False) -> Any:
    """A CPU tensor over the memory of a NumPy array of a supported dtype: shared when compact and writable, else
    copied."""
    # Bytes from which on NumPy asks the system for huge pages, with which copying 64 MB takes a fifth of the time.
    least_huge = 1 << 22
    import numpy as np

    tvm_ffi = ffi()
    dtype = dtypes.canonical(array.dtype)
    if copy or not _is_sharable(array):
        shape, byte_count = tuple(array.shape), array.size * dtypes.itemsize(dtype)
        if byte_count < least_huge:
            out = empty(shape, dtype)
            np.copyto(to_numpy(out, dtype, shape, CPU), array)
            return out
        with reporting("a copy", byte_count):
            memory: Any = np.empty(byte_count + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        copied = memory[start : start + byte_count].view(dtypes.to_numpy(dtype)).reshape(shape)
        np.copyto(copied, array)
        array = copied
    if dtypes.is_complex(dtype):
        array, dtype = as_pairs(array), dtypes.real_dtype(dtype)
    if dtype != "bfloat16":
        return reset_strides(tvm_ffi.from_dlpack(array), array.shape, dtype)
    return view(tvm_ffi.from_dlpack(array.view(np.uint16)), tuple(array.shape), "bfloat16")


def as_pairs(array: Any) -> Any:
    """A complex array as pairs of floats (see meta.ir.type.stored_shape), in the same memory if it is compact."""
    import numpy as np

    part = dtypes.to_numpy(dtypes.real_dtype(dtypes.canonical(array.dtype)))
    compact: Any = np.ascontiguousarray(array)
    return compact.reshape((*array.shape, 1)).view(part)


def _is_sharable(array: Any) -> bool:
    flags = array.flags
    return bool(flags.c_contiguous and flags.writeable and flags.aligned and array.dtype.isnative)


def reset_strides(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """The same memory with row-major strides, which kernels check: other libraries give axes of size 1 any stride."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(tuple(data.strides)), strict=True):
        if stride != expected:
            return view(data, tuple(shape), dtype)
        expected *= size
    return data


def host_array(data: Any, dtype: Any) -> Any:
    """`data` (numbers, nested lists of numbers, or an array) as a NumPy array of `dtype`; the default for Python floats
    is float32, for complex numbers complex64.

    Raises ArgumentError for ragged or non-numeric data and for Python integers outside the range of `dtype`."""
    import numpy as np

    try:
        host = np.asarray(data)
    except ValueError as error:
        problem = f"cannot make an array: {error}"
        raise ArgumentError("array", problem, "numbers in equal-length lists") from None
    source: Any = host.dtype
    if source.kind in "OSU":
        content = "integers beyond 64 bits" if _is_int(host) else "text" if source.kind in "SU" else "objects"
        raise ArgumentError(
            "array", f"{type(data).__name__} holds {content}", "numbers in equal-length lists of a supported dtype"
        )
    is_array = hasattr(data, "dtype")
    if not is_array and source.name in ("float64", "uint64"):
        host = _with_large_integers(data, host, dtype)
        source = host.dtype
    if dtype is None and not is_array:
        dtype = {"float64": "float32", "complex128": "complex64"}.get(source.name)
    name = dtypes.canonical(source.name if dtype is None else dtype, "array")
    target = dtypes.to_numpy(name)
    if source == target:
        return host
    if source.kind == "c":
        _require_complex(name, "array")
    if not is_array:
        check_range(host, name)
    with np.errstate(over="ignore"):  # infinities
        return host.astype(target)


def numbers_dtype(data: Any) -> str:
    """The dtype that `host_array` gives numbers or nested lists of numbers, integers of up to 64 bits included."""
    import numpy as np

    try:
        kind = np.asarray(data).dtype.kind
    except ValueError:
        kind = ""  # ragged
    known = {"b": "bool", "i": "int64", "u": "uint64", "f": "float32", "c": "complex64"}
    return known.get(kind) or str(host_array(data, None).dtype)


def _with_large_integers(data: Any, host: Any, dtype: Any) -> Any:
    """`data`, which NumPy reads as `host`, with Python integers beyond int64: of uint64 if that is `dtype`; NumPy reads
    them as floats beside others. Raises ArgumentError for such integers without a dtype."""
    import numpy as np

    if dtype is None and host.dtype.kind == "u" and _is_int(np.asarray(data, object)):
        check_range(host, "int64")
    if dtype is None or host.dtype.kind == "u" or dtypes.canonical(dtype, "array") != "uint64":
        return host
    integers = np.asarray(data, object)
    if not _is_int(integers):
        return host
    check_range(integers, "uint64")
    return integers.astype(np.uint64)


def _require_complex(dtype: str, where: str) -> None:
    if not dtypes.is_complex(dtype):
        raise ArgumentError(
            where, f"complex numbers do not fit into {dtype}", ", ".join(dtypes.COMPLEX), "take their real parts"
        )


def _is_int(host: Any) -> bool:
    return host.dtype.kind == "O" and all(isinstance(x, int) for x in host.ravel())


def check_range(host: Any, dtype: str) -> None:
    """Raise ArgumentError if `dtype` is an integer dtype and a number, rounded towards zero, is outside its range."""
    if not dtypes.is_int(dtype) or host.dtype == bool:
        return
    low, high = dtypes.int_range(dtype)
    is_inside = (host >= low) & (host <= high)
    outside = host[~is_inside.astype(bool)]
    if outside.size:
        raise ArgumentError(
            "array", f"the number {outside[0]} does not fit into {dtype}", f"{low} to {high}", "use a wider dtype"
        )


def to_numpy(data: Any, dtype: str, shape: tuple[int, ...], on: Device) -> Any:
    """A NumPy array that shares the memory of a CPU tensor, or a copy of a tensor on another device."""
    import numpy as np

    if on.kind != "cpu":
        data = copy_to(data, CPU)
    if dtypes.is_complex(dtype):
        pairs: Any = np.from_dlpack(data)
        return pairs.view(dtypes.to_numpy(dtype))[..., 0]
    if dtype != "bfloat16":
        return np.from_dlpack(data)
    words: Any = np.from_dlpack(view(data, shape, "uint16"))
    return words.view(dtypes.to_numpy("bfloat16"))
