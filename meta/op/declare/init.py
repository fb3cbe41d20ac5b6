"""Declarations of operators that create tensors."""

from __future__ import annotations

from meta.device import Device
from meta.ir.type import TensorType, tensor_type
from meta.op.registry import declare
from meta.schema import init


@declare("zeros", schema=init.init, pattern="injective", aten="zeros", relay="zeros")
def zeros(shape: tuple[int, ...], dtype: str, device: Device) -> TensorType:
    """A tensor full of zeros."""
    return tensor_type(shape, dtype, device)


@declare("ones", schema=init.init, pattern="injective", aten="ones", relay="ones")
def ones(shape: tuple[int, ...], dtype: str, device: Device) -> TensorType:
    """A tensor full of ones."""
    return tensor_type(shape, dtype, device)
