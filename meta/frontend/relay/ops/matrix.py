"""Triangles and diagonals of matrices, and sequences of different lengths."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, converter


def _row_and_column(x: Tensor) -> tuple[Any, Any]:
    """The row (rows, 1) and the column (columns,) of each element of matrices."""
    rows, columns = x.shape[-2:]
    return meta.expand_dims(meta.arange(0, rows, 1, "int64"), (1,)), meta.arange(0, columns, 1, "int64")


@converter("matrix_set_diag")
def matrix_set_diag(call: OpCall) -> Any:
    """Matrices with diagonals k1 to k2 replaced. Diagonals shorter than the longest are aligned to the left or right
    of their rows."""
    x, diagonal = call.tensors(2)
    k1, k2 = call.int("k1"), call.int("k2")
    aligned = call.flag("super_diag_right_align", True), call.flag("sub_diag_right_align")
    if k1 > k2:
        call.refuse(f"diagonals {k1} to {k2}", "an ascending range")
    row, column = _row_and_column(x)
    along = meta.minimum(row, column)
    index = meta.subtract(column, row)
    if k1 != k2:
        longest = diagonal.shape[-1]
        for right, part in zip(aligned, (meta.greater(index, 0), meta.less(index, 0)), strict=True):
            if right:
                along = meta.where(part, meta.add(along, meta.subtract(longest, _length(x, index))), along)
        line = meta.clip(meta.subtract(k2, index), 0, k2 - k1)
        along = meta.add(meta.multiply(line, longest), meta.clip(along, 0, longest - 1))
        diagonal = meta.reshape(diagonal, (*diagonal.shape[:-2], (k2 - k1 + 1) * longest))
    spread = meta.take(diagonal, along, diagonal.ndim - 1, "clip")
    in_band = meta.logical_and(meta.greater_equal(index, k1), meta.less_equal(index, k2))
    return meta.where(in_band, spread, x)


def _length(x: Tensor, index: Tensor) -> Any:
    """The number of elements of diagonals."""
    rows, columns = x.shape[-2:]
    return meta.minimum(meta.add(meta.minimum(index, 0), rows), meta.subtract(columns, meta.maximum(index, 0)))


@converter("trilu")
def trilu(call: OpCall) -> Any:
    x, k = call.tensors(2)
    upper, diagonal = call.flag("upper", True), call.maybe_number(k)
    if diagonal is not None:
        return meta.triu(x, int(diagonal)) if upper else meta.tril(x, int(diagonal))
    row, column = _row_and_column(x)
    distance, limit = meta.subtract(column, row), meta.cast(meta.reshape(k, ()), "int64")
    in_triangle = meta.greater_equal(distance, limit) if upper else meta.less_equal(distance, limit)
    return meta.where(in_triangle, x, 0)


@converter("sequence_mask")
def sequence_mask(call: OpCall) -> Any:
    """Elements past the length of their sequence become the mask's value. axis: of time, 0 or 1; the other of these
    two is the batch."""
    x, lengths = call.tensors(2)
    axis = call.only("axis", 0, 1)
    return meta.sequence_mask(x, lengths, call.float("mask_value", 0.0), axis)


@converter("reverse_sequence")
def reverse_sequence(call: OpCall) -> Any:
    """Each sequence with its first `length` elements reversed."""
    x, lengths = call.tensors(2)
    return meta.reverse_sequence(x, lengths, call.int("seq_axis", 1), call.int("batch_axis", 0))
