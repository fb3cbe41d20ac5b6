"""Sums, means and maxima of rows of a table in bags. ATen numbers them: 0 sum, 1 mean, 2 max."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row
from meta.frontend.torch.aten._values import in_dtype
from meta.functional.embedding import bags_of, row_counts

_MODES: tuple[Any, ...] = ("sum", "mean", "max")


@row("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag")
def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:  # fmt: skip
    """The result, the bag of each index, the number of rows in each bag, and for maxima the rows that they are of."""
    if mode not in range(len(_MODES)):
        raise ArgumentError("embedding_bag", f"mode is {mode}", "0 (sum), 1 (mean) or 2 (max)")
    padding = None if padding_idx is None or padding_idx < 0 else padding_idx
    kind, last = _MODES[mode], include_last_offset
    out = meta.embedding_bag(weight, indices, offsets, kind, per_sample_weights, last, padding, scale_grad_by_freq)
    bags, number = bags_of(indices, offsets, last)
    bags = in_dtype(bags, offsets.dtype)
    if kind == "sum":
        none = meta.zeros((number,), offsets.dtype, weight.device)
        is_plain = padding is None and weight.dtype in ("float32", "float16")
        return out, meta.zeros((0,), bags.dtype, weight.device) if is_plain else bags, none, none
    counts = meta.cast(_counted(indices, padding), "int64")
    sizes = in_dtype(meta.scatter_add(meta.zeros((number,), "int64", weight.device), 0, bags, counts), offsets.dtype)
    if kind == "mean":
        return out, bags, sizes, sizes
    return out, bags, sizes, in_dtype(_largest_rows(weight, indices, bags, out, counts), offsets.dtype)


def _counted(indices: Tensor, padding_idx: int | None) -> Any:
    if padding_idx is None:
        return meta.ones_like(indices, "bool")
    return meta.not_equal(indices, padding_idx)


def _largest_rows(weight: Tensor, indices: Tensor, bags: Any, out: Tensor, counts: Any) -> Any:
    """The row of the first maximum in each bag and feature, 0 in bags without rows."""
    n = indices.shape[0]
    position = meta.expand_dims(meta.arange(0, n, 1, "int64", weight.device), 1)
    is_largest = meta.equal(meta.embedding(weight, indices), meta.take(out, bags, 0))
    is_largest = meta.logical_and(is_largest, meta.expand_dims(meta.greater(counts, 0), 1))
    places = meta.broadcast_to(meta.expand_dims(bags, 1), is_largest.shape)
    none = meta.full(out.shape, n, "int64", weight.device)
    first = meta.scatter_reduce(none, 0, places, meta.where(is_largest, position, n), "amin")
    return meta.take(meta.concatenate([indices, meta.zeros((1,), indices.dtype, weight.device)], 0), first, 0)


@row()
def _embedding_bag_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor,
    num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:  # fmt: skip
    """The bags by the offsets: the forward operator gives none for plain sums."""
    bags = bags_of(indices, offsets, False)[0]
    return _embedding_bag_dense_backward(
        grad, indices, bags, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
        padding_idx,
    )  # fmt: skip


@row()
def _embedding_bag_dense_backward(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Tensor | None, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if _MODES[mode] == "max":
        used = meta.where(meta.expand_dims(meta.greater(bag_size, 0), 1), grad, 0)
        nothing = meta.zeros((num_weights, grad.shape[1]), grad.dtype, grad.device)
        return meta.scatter_add(nothing, 0, maximum_indices, used)
    if _MODES[mode] == "mean":
        grad = grad / meta.expand_dims(meta.cast(meta.maximum(bag_size, 1), grad.dtype), 1)
    rows = meta.take(grad, offset2bag, 0)
    if per_sample_weights is not None:
        rows = rows * meta.expand_dims(per_sample_weights, 1)
    if scale_grad_by_freq:
        counts = row_counts(indices, num_weights, grad.dtype)
        rows = rows / meta.expand_dims(meta.take(counts, indices, 0), 1)
    if padding_idx >= 0:
        rows = meta.where(meta.expand_dims(_counted(indices, padding_idx), 1), rows, 0)
    return meta.embedding_dx(rows, indices, num_weights)


@row()
def _embedding_bag_per_sample_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Any:
    if _MODES[mode] != "sum":
        raise ArgumentError("embedding_bag", f"per_sample_weights with mode {mode}", "0 (sum)")
    bags = bags_of(indices, offsets, False)[0]
    out = meta.sum(meta.take(grad, bags, 0) * meta.embedding(weight, indices), 1)
    return meta.where(_counted(indices, padding_idx), out, 0) if padding_idx >= 0 else out
