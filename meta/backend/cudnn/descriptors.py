"""Descriptors of cuDNN's C API, destroyed with their Python objects."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Final

from meta.backend.cudnn import loader

DATA_TYPES: Final = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
"""cudnnDataType_t by dtype."""


class Descriptor:
    """A descriptor of a class of cuDNN's ("Tensor", "Pooling"). pointer: the argument for calls."""

    __slots__ = ("__weakref__", "pointer")

    def __init__(self, kind: str) -> None:
        functions, descriptor = loader.functions(), ctypes.c_void_p()
        getattr(functions, f"cudnnCreate{kind}Descriptor")(ctypes.byref(descriptor))
        self.pointer: int = descriptor.value or 0
        destroy = getattr(functions, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, self.pointer).atexit = False


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor of that shape (batch, channels, *spatial) whose channels are the last axis in memory."""
    batch, *spatial, channels = row_major_strides((shape[0], *shape[2:], shape[1]))
    return (batch, channels, *spatial)


def tensor(dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> Descriptor:
    """The descriptor of a tensor, padded with axes of size 1 to rank 4; row-major by default."""
    min_rank = 4
    descriptor = Descriptor("Tensor")
    strides = row_major_strides(shape) if strides is None else tuple(strides)
    ones = [1] * max(min_rank - len(shape), 0)
    shape, strides = (*shape, *ones), (*strides, *ones)
    loader.functions().cudnnSetTensorNdDescriptor(
        descriptor.pointer, DATA_TYPES[dtype], len(shape), _ints(shape), _ints(strides)
    )
    return descriptor


def pooling(mode: int, window: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Descriptor:
    """The descriptor of a pooling window; NaN propagates."""
    propagate_nan = 1
    descriptor = Descriptor("Pooling")
    loader.functions().cudnnSetPoolingNdDescriptor(
        descriptor.pointer, mode, propagate_nan, len(window), _ints(window), _ints(padding), _ints(stride)
    )
    return descriptor


def factor(value: float, dtype: str) -> Any:
    """A blending factor (alpha, beta) for cuDNN: a pointer to a double for float64, else to a float."""
    return ctypes.byref(ctypes.c_double(value) if dtype == "float64" else ctypes.c_float(value))
