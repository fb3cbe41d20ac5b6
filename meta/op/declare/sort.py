"""Declarations of operators that sort the elements along an axis."""

from __future__ import annotations

from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import sort as schema


@declare("argsort", schema=schema.sort, method=True, amp="keep")
def argsort(x: TensorType, axis: int, descending: bool) -> TensorType:
    """The positions, as int64, that sort the elements along an axis. Equal elements keep their order; NaN counts as
    larger than every number."""
    rules.axis_index(axis, x.ndim)
    return x.with_dtype("int64")


@declare("sort", schema=schema.sort, method=True, amp="keep")
def sort(x: TensorType, axis: int, descending: bool) -> TensorType:
    """The elements sorted along an axis. NaN counts as larger than every number."""
    rules.axis_index(axis, x.ndim)
    return x


@declare("binary_search", schema=schema.binary_search, amp="never")
def binary_search(sequence: TensorType, values: TensorType, right: bool) -> TensorType:
    """The positions, as int64, at which values would be put into ascending rows: before equal elements, or behind them.
    NaN counts as larger than every number."""
    rules.same_device(sequence, values)
    rules.require_same_dtype(sequence=sequence, values=values)
    rules.require(sequence.ndim > 0, "'sequence' is 0-d", "at least one axis")
    lead = sequence.shape[:-1]
    rules.require(
        not lead or rules.same_shape(lead, values.shape[:-1]),
        f"'sequence' has shape {rules.show(sequence.shape)}, 'values' {rules.show(values.shape)}",
        "equal sizes but for the last axis, or a vector as the sequence",
    )
    return values.with_dtype("int64")


@declare("rank_positions", schema=schema.rank_positions, amp="keep")
def rank_positions(x: TensorType, ranks: TensorType, axis: int) -> TensorType:
    """The positions, as int64, of the elements that a sort along an axis would put at given ranks, without sorting.
    Equal elements keep their order; NaN counts as larger than every number."""
    axis = rules.axis_index(axis, x.ndim)
    rules.same_device(x, ranks)
    rules.require(ranks.dtype == "int64", f"'ranks' is {ranks.dtype}", "int64", 'cast it: ranks.cast("int64")')
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    rules.require(
        ranks.ndim == x.ndim and rules.same_shape(others, (*ranks.shape[:axis], *ranks.shape[axis + 1 :])),
        f"'x' has shape {rules.show(x.shape)}, 'ranks' {rules.show(ranks.shape)}",
        f"equal sizes but for axis {axis}",
    )
    return ranks


@declare("topk", schema=schema.topk, method=True, amp="keep", outputs=("values", "indices"))
def topk(x: TensorType, k: int, axis: int, largest: bool) -> TupleType:
    """The k largest (or smallest) elements along an axis, sorted, and their positions as int64. Equal elements keep
    their order; NaN counts as larger than every number."""
    axis = rules.axis_index(axis, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    rules.require(
        k >= 0 and not (isinstance(size, int) and k > size),
        f"k is {k}, axis {axis} of x has size {size}",
        f"0 to {size}",
    )
    rules.require(x.ndim > 0 or k == 1, f"k is {k} for a 0-d tensor", "1")
    values = x.with_size(axis, k) if x.ndim else x
    return TupleType((values, values.with_dtype("int64")))
