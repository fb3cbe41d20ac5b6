"""Gradients of matrix products."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def matmul_dx1(x1: TensorType, x2: Any, transpose_a: bool, transpose_b: bool, dy: Any) -> Any:
    """dy @ x2^T, arranged so that no operand is transposed in memory, summed over broadcast batch axes."""
    if transpose_a:
        return fit(meta.matmul(x2, dy, transpose_b, True), x1)
    return fit(meta.matmul(dy, x2, False, not transpose_b), x1)


def matmul_dx2(x1: Any, x2: TensorType, transpose_a: bool, transpose_b: bool, dy: Any) -> Any:
    """x1^T @ dy, arranged so that no operand is transposed in memory, summed over broadcast batch axes."""
    if transpose_b:
        return fit(meta.matmul(dy, x1, True, transpose_a), x2)
    return fit(meta.matmul(x1, dy, not transpose_a, False), x2)
