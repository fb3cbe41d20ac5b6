"""Gradients of operators that change shape, type or place."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType


def concatenate_grad(xs: tuple[TensorType, ...], axis: int, dy: Any) -> tuple[Any, ...]:
    """dy cut where the operands were joined."""
    at = axis % xs[0].ndim
    starts = [0]
    for x in xs:
        starts.append(starts[-1] + x.shape[at])
    zeros, full = [0] * dy.ndim, list(dy.shape)
    out: list[Any] = []
    for begin, end in zip(starts, starts[1:], strict=False):
        zeros[at], full[at] = begin, end
        out.append(meta.strided_slice(dy, tuple(zeros), tuple(full)))
    return tuple(out)
