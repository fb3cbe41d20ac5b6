"""Tensors made from NumPy arrays and seen as such.

The memory of an array is shared when it is compact, writable and in native byte order. It may start at any address:
kernels are built for that. Other memory is copied."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.memory.allocation import copy_to, view
from meta.backend.tvm.runtime import ffi
from meta.device import CPU, Device
from meta.errors import ArgumentError


def from_numpy(array: Any, copy: bool = False) -> Any:
    """A CPU tensor over the memory of a NumPy array of a supported dtype: shared when compact and writable, else
    copied."""
    import numpy as np

    tvm_ffi = ffi()
    dtype = dtypes.canonical(array.dtype)
    if copy or not _sharable(array):
        array = np.array(array, dtypes.to_numpy(dtype), order="C", copy=True)
    if dtype != "bfloat16":
        return compact(tvm_ffi.from_dlpack(array), array.shape, dtype)
    return view(tvm_ffi.from_dlpack(array.view(np.uint16)), tuple(array.shape), "bfloat16")


def _sharable(array: Any) -> bool:
    flags = array.flags
    return bool(flags.c_contiguous and flags.writeable and flags.aligned and array.dtype.isnative)


def compact(data: Any, shape: tuple[int, ...], dtype: str) -> Any:
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
        data = copy_to(data, dtype, CPU)
    if dtype != "bfloat16":
        return np.from_dlpack(data)
    words: Any = np.from_dlpack(view(data, shape, "uint16"))
    return words.view(dtypes.to_numpy("bfloat16"))
