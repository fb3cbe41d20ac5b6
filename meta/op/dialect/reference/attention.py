"""Attention in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain

Array = Any


def _scaled_scores(q: Array, k: Array, causal: bool, scale: float | None) -> tuple[Array, float]:
    """The scaled scores, -inf where a key is masked, and the scale."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = widen(q) @ np.swapaxes(widen(k), -1, -2) * factor
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return scores, factor


def attention(q: Array, k: Array, v: Array, causal: bool, scale: float | None) -> tuple[Array, Array]:
    scores, _ = _scaled_scores(q, k, causal, scale)
    highest = _finite_offset(np.max(scores, axis=-1, keepdims=True))
    exponentials = np.exp(scores - highest)
    total = np.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total) @ widen(v), (np.log(total) + highest)[..., 0]


def _finite_offset(rows: Array) -> Array:
    """0 for the rows whose scores are all -inf: their exponentials and results are 0, as in torch."""
    return np.where(rows == -np.inf, 0, rows)


def attention_dx(
    q: Array, k: Array, v: Array, y: Array, lse: Array, dy: Array, causal: bool, scale: float | None
) -> tuple[Array, Array, Array]:
    scores, factor = _scaled_scores(q, k, causal, scale)
    p = np.exp(scores - _finite_offset(lse[..., None]))
    grad = widen(dy)
    dp = grad @ np.swapaxes(widen(v), -1, -2)
    ds = p * (dp - np.sum(grad * widen(y), axis=-1, keepdims=True)) * factor
    return ds @ widen(k), np.swapaxes(ds, -1, -2) @ widen(q), np.swapaxes(p, -1, -2) @ grad


plain({"scaled_dot_product_attention": attention, "scaled_dot_product_attention_dx": attention_dx})
