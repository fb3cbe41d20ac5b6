"""Rows of a table, and sums, means and maxima of bags of them."""

from __future__ import annotations

from typing import Any, Literal

import meta
from meta._generated.methods import T, Tensor
from meta.dtype import accumulation_dtype, is_int
from meta.errors import ArgumentError
from meta.functional.norm import p_norm

__all__ = ["embedding_bag", "embedding_renorm"]


def embedding_renorm(weight: T, indices: T, max_norm: float, norm_type: float = 2.0) -> T:
    """The table (rows, features) with each row at one of the indices whose p-norm exceeds `max_norm` scaled down to it
    (to max_norm / (norm + 1e-7) of itself), p being `norm_type`. Raises ArgumentError for a table of another rank."""
    if weight.ndim != 2:
        raise ArgumentError("embedding_renorm", f"'weight' has shape {tuple(weight.shape)}", "(rows, features)")
    rows = weight.shape[0]
    count = row_counts(meta.reshape(indices, (indices.size,)), rows, weight.dtype)
    norm = p_norm(weight, norm_type, 1)
    is_long = meta.logical_and(meta.greater(count, 0), meta.greater(norm, max_norm))
    return weight * meta.expand_dims(meta.where(is_long, max_norm / (norm + 1e-7), 1), 1)


def rows_of(weight: T, indices: T, padding_idx: int | None, scale_grad_by_freq: bool) -> T:
    """The rows of a table at the indices. The row `padding_idx` has no gradient; with `scale_grad_by_freq` the gradient
    of each other row is divided by the number of its indices."""
    rows = meta.embedding(weight, indices)
    if scale_grad_by_freq:
        counts = row_counts(meta.reshape(indices, (indices.size,)), weight.shape[0], weight.dtype)
        share = rows / meta.expand_dims(meta.embedding(counts, indices), -1)
        rows = share + meta.stop_gradient(rows - share)
    if padding_idx is None:
        return rows
    padding = meta.expand_dims(meta.equal(indices, padding_idx), -1)
    return meta.where(padding, meta.stop_gradient(rows), rows)


def row_counts(flat: Tensor, rows: Any, dtype: str) -> Tensor:
    """How often each row occurs among the indices."""
    return meta.embedding_dx(meta.ones(flat.shape, dtype, flat.device), flat, rows)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor | None = None, mode: Literal["sum", "mean", "max"] = "mean",
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of a table in each bag, (bags, features).

    weight: the table, (rows, features). indices: integer positions, (bags, length); or of all bags after another, (n,),
    with the position where each bag begins in `offsets` (ascending, from 0; with `include_last_offset` also the end).
    per_sample_weights: multiplies each row, for "sum" only; of the shape of indices. padding_idx: a row that does not
    count. scale_grad_by_freq: divide the gradient of each row by the number of its indices. Bags without rows are 0.
    Equal maxima share the gradient. Raises ArgumentError for arguments that do not fit."""
    rows = weight.shape[0]
    _check(weight, indices, offsets, mode, per_sample_weights)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError("embedding_bag", f"padding_idx is {padding_idx}", f"{-rows} to {rows - 1}, a row of weight")
    wide = accumulation_dtype(weight.dtype)
    count = meta.ones(indices.shape, wide, weight.device)
    if padding_idx is not None:
        count = meta.cast(meta.not_equal(indices, padding_idx % rows), wide)
    bags, number = bags_of(indices, offsets, include_last_offset)
    n = indices.size
    flat, count = meta.reshape(indices, (n,)), meta.reshape(count, (n,))
    values = meta.cast(rows_of(weight, flat, None, scale_grad_by_freq), wide)
    if mode == "max":
        return meta.cast(_largest(values, bags, count, number), weight.dtype)
    factor = count if per_sample_weights is None else count * meta.reshape(per_sample_weights, (n,))
    total = meta.embedding_dx(values * meta.expand_dims(factor, 1), bags, number)
    if mode == "mean":
        lengths = meta.embedding_dx(count, bags, number)
        total = total / meta.expand_dims(meta.maximum(lengths, 1), 1)
    return meta.cast(total, weight.dtype)


def _check(
    weight: Tensor, indices: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None
) -> None:
    name = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(name, f"mode is {mode!r}", '"sum", "mean" or "max"')
    if weight.ndim != 2:
        raise ArgumentError(name, f"'weight' has shape {tuple(weight.shape)}", "(rows, features)")
    if indices.ndim not in (1, 2) or not is_int(indices.dtype) or (offsets is None) != (indices.ndim == 2):
        text = "None" if offsets is None else f"of shape {tuple(offsets.shape)}"
        problem = f"indices are {indices.dtype} of shape {tuple(indices.shape)}, offsets {text}"
        raise ArgumentError(name, problem, "integer indices (bags, length), or (n,) with offsets")
    if offsets is not None and (offsets.ndim != 1 or not is_int(offsets.dtype)):
        raise ArgumentError(name, f"offsets are {offsets.dtype} of shape {tuple(offsets.shape)}", "integers, (bags,)")
    if per_sample_weights is None:
        return
    if mode != "sum":
        raise ArgumentError(name, f"per_sample_weights with mode {mode!r}", 'mode "sum"')
    if tuple(per_sample_weights.shape) != tuple(indices.shape):
        shapes = f"per_sample_weights have shape {tuple(per_sample_weights.shape)}, indices {tuple(indices.shape)}"
        raise ArgumentError(name, shapes, "equal shapes")


def bags_of(indices: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, int]:
    """The bag of each index, and the number of bags."""
    if offsets is None:
        number, length = indices.shape
        bags = meta.repeat(meta.arange(0, number, 1, "int64", indices.device), length)
        return bags, number
    begins = meta.cast(offsets[:-1] if include_last_offset else offsets, "int64")
    position = meta.arange(0, indices.size, 1, "int64", indices.device)
    return meta.searchsorted(begins, position, right=True) - 1, begins.shape[0]


def _largest(values: T, bags: T, count: Any, number: Any) -> T:
    """The largest of the counted rows in each bag; 0 in a bag without rows."""
    places = meta.broadcast_to(meta.expand_dims(bags, 1), values.shape)
    lowest = meta.full((number, values.shape[1]), float("-inf"), values.dtype, values.device)
    counted = meta.where(meta.greater(meta.expand_dims(count, 1), 0), values, float("-inf"))
    largest = meta.scatter_elements(lowest, 0, places, counted, "max")
    filled = meta.expand_dims(meta.greater(meta.embedding_dx(count, bags, number), 0), 1)
    return meta.where(filled, largest, 0)
