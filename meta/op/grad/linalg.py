"""Gradients of matrix products. Transposition flags avoid transposing an operand in memory."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def matmul_dx1(x1: TensorType, x2: Tensor, transpose_a: bool, transpose_b: bool, dy: Tensor) -> Tensor:
    """dy @ x2^T (or its transpose), summed over broadcast batch axes."""
    if x1.ndim == 1 or x2.ndim == 1:
        return _vector_dx1(x1, x2, transpose_a, transpose_b, dy)
    if transpose_a:
        return fit(meta.matmul(x2, dy, transpose_b, True), x1)
    return fit(meta.matmul(dy, x2, False, not transpose_b), x1)


def matmul_dx2(x1: Tensor, x2: TensorType, transpose_a: bool, transpose_b: bool, dy: Tensor) -> Tensor:
    """x1^T @ dy (or its transpose), summed over broadcast batch axes."""
    if x1.ndim == 1 or x2.ndim == 1:
        return _vector_dx2(x1, x2, transpose_a, transpose_b, dy)
    if x2.ndim == 2 < x1.ndim and not transpose_a:  # one product of all rows, no sum over batches
        x1, dy = _flatten_rows(x1, x1.shape[-1]), _flatten_rows(dy, dy.shape[-1])
    if transpose_b:
        return fit(meta.matmul(dy, x1, True, transpose_a), x2)
    return fit(meta.matmul(x1, dy, not transpose_a, False), x2)


def _vector_dx1(x1: TensorType, x2: Tensor, transpose_a: bool, transpose_b: bool, dy: Tensor) -> Tensor:
    """A vector is a matrix with one row (on the left) or one column (on the right)."""
    if x1.ndim == 1 and x2.ndim == 1:
        return dy * x2
    if x1.ndim == 1:
        rows = meta.matmul(meta.expand_dims(dy, -2), x2, False, not transpose_b)
        return fit(meta.squeeze(rows, -2), x1)
    return fit(_outer(x2, dy) if transpose_a else _outer(dy, x2), x1)


def _vector_dx2(x1: Tensor, x2: TensorType, transpose_a: bool, transpose_b: bool, dy: Tensor) -> Tensor:
    if x1.ndim == 1 and x2.ndim == 1:
        return x1 * dy
    if x1.ndim == 1:
        return fit(_outer(dy, x1) if transpose_b else _outer(x1, dy), x2)
    columns = meta.matmul(x1, meta.expand_dims(dy, -1), not transpose_a, False)
    return fit(meta.squeeze(columns, -1), x2)


def _outer(rows: Tensor, columns: Tensor) -> Tensor:
    """The outer product of two vectors, or of batches of vectors."""
    return meta.expand_dims(rows, -1) * meta.expand_dims(columns, -2)


def dense_dw(x: Tensor, w: TensorType, dy: Tensor) -> Tensor:
    """dy^T @ x over all rows."""
    return meta.matmul(_flatten_rows(dy, w.shape[0]), _flatten_rows(x, w.shape[1]), True, False)


def dense_db(bias: TensorType | None, dy: Tensor) -> Tensor | None:
    """The sum of the rows of dy."""
    return None if bias is None else meta.sum_to(dy, bias.shape)


def _flatten_rows(x: Tensor, size: Any) -> Tensor:
    """x of shape (..., size) as a matrix (rows, size)."""
    if x.ndim == 2:
        return x
    count: Any = 1
    for d in x.shape[:-1]:
        count = count * d
    return meta.reshape(x, (count, size))
