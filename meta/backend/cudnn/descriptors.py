"""Descriptors of cuDNN's C API, destroyed with the Python objects that hold them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Final

from meta.backend.cudnn import library

DATA_TYPES: Final = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
"""cudnnDataType_t by dtype."""
_PROPAGATE_NAN: Final = 1
_LEAST_RANK: Final = 4


class Descriptor:
    """A descriptor of a kind ("Tensor", "Pooling"); `pointer` goes into calls."""

    __slots__ = ("__weakref__", "pointer")

    def __init__(self, kind: str) -> None:
        functions, made = library.functions(), ctypes.c_void_p()
        getattr(functions, f"cudnnCreate{kind}Descriptor")(ctypes.byref(made))
        self.pointer: int = made.value or 0
        destroy = getattr(functions, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, self.pointer).atexit = False


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def compact(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def tensor(dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> Descriptor:
    """A tensor of at least four axes (ones are added behind), row-major unless `strides` are given."""
    made = Descriptor("Tensor")
    steps = compact(shape) if strides is None else tuple(strides)
    missing = max(_LEAST_RANK - len(shape), 0)
    shape, steps = (*shape, *[1] * missing), (*steps, *[1] * missing)
    library.functions().cudnnSetTensorNdDescriptor(
        made.pointer, DATA_TYPES[dtype], len(shape), _ints(shape), _ints(steps)
    )
    return made


def pooling(mode: int, window: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Descriptor:
    made = Descriptor("Pooling")
    library.functions().cudnnSetPoolingNdDescriptor(
        made.pointer, mode, _PROPAGATE_NAN, len(window), _ints(window), _ints(padding), _ints(stride)
    )
    return made


def factor(value: float, dtype: str) -> Any:
    """A blending factor (alpha, beta) as cuDNN takes it: a pointer to a float, or to a double for float64."""
    return ctypes.byref(ctypes.c_double(value) if dtype == "float64" else ctypes.c_float(value))
