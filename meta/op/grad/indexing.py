"""Gradients of operators that pick elements by position, and put them there."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def strided_set_dx(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Any
) -> Any:
    """dy with zeros where x was replaced."""
    zero = meta.zeros((1,) * len(dy.shape), dtype=v.dtype, device=v.device)
    return meta.strided_set(dy, zero, begin, end, strides)


def strided_set_dv(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Any
) -> Any:
    """dy where v was put, summed over what v was broadcast along."""
    return fit(meta.strided_slice(dy, begin, end, strides), v)
