"""Tensors inside of other tensors, for kernels that take a tensor at the start of its memory."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from meta.backend.memory.allocation import view
from meta.backend.tvm import adapter as tvm

_CODES: Final = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
"""DLPack's numbers of the kinds of dtypes (dlpack.h, DLDataTypeCode)."""


class _Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h: a DLTensor, then what its consumer calls to release it."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class Placed:
    """A tensor in the memory of another: `data` is the tensor, which must not outlive this object.

    A view by TVM has the address of the whole memory and a byte offset, which compiled kernels refuse."""

    __slots__ = ("_shape", "_strides", "_tensor", "base", "data")

    def __init__(self, base: Any, offset: int, shape: tuple[int, ...], dtype: str) -> None:
        """base: a compact tensor of bytes.  offset: bytes from its start, a multiple of the dtype's size."""
        self.base = base
        if not offset:
            self.data = view(base, shape, dtype)
            return
        kind = tvm.dtype(dtype)
        ndim = len(shape)
        strides = [1] * ndim
        for i in range(ndim - 1, 0, -1):
            strides[i - 1] = strides[i] * shape[i]
        self._shape, self._strides = (ctypes.c_int64 * max(ndim, 1))(*shape), (ctypes.c_int64 * max(ndim, 1))(*strides)
        on = base.device
        self._tensor = _Tensor(
            base.data_ptr() + offset, on.dlpack_device_type(), on.index, ndim, _CODES[dtype.rstrip("0123456789")],
            kind.itemsize * 8, 1, ctypes.addressof(self._shape), ctypes.addressof(self._strides), 0, None, None,
        )  # fmt: skip
        self.data = tvm.from_dlpack(_Exporter(ctypes.addressof(self._tensor), on))


class _Exporter:
    """An exporter for `from_dlpack`."""

    def __init__(self, address: int, on: Any) -> None:
        self.address = address
        self.on = on

    def __dlpack__(self, **_: Any) -> Any:
        return _new_capsule(self.address, b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.on.dlpack_device_type(), self.on.index


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
