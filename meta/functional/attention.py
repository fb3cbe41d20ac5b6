"""Attention with masks, dropout and grouped heads."""

from __future__ import annotations

import math
import warnings
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dtype import HALVES, accumulation_dtype
from meta.errors import ArgumentError, MetaError
from meta.op import rules

__all__ = ["attention", "multi_head_attention", "scaled_dot_product_attention"]


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None,
    dropout: float = 0.0, key: Tensor | None = None, grouped: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(scale * q @ k^T + mask) @ v, (A. Vaswani et al., "Attention Is All You Need", 2017):
    (..., length, value features).

    q: (..., length, features); k: (..., keys, features); v: (..., keys, value features); leading axes broadcast.
    mask: broadcasts to (..., length, keys); bool, true where a query attends to a key, or numbers added to the scores.
    causal: query i attends to keys 0 to i only.  scale: None for 1 / sqrt(features).
    dropout: share of the weights that are dropped, at random by `key` from `meta.random.next_key()`.
    grouped: q has a multiple of the heads of k and v, axis -3; neighbouring heads share keys and values.
    A query that attends to no key gives 0. Without mask and dropout this is the operator
    `attention_with_lse`. Raises ArgumentError for heads that do not divide and dropout without a key,
    TypeInferenceError for shapes and dtypes that do not fit."""
    if dropout and key is None:
        remedy = "pass key=meta.random.next_key()"
        raise ArgumentError("attention", f"dropout is {dropout}, key is None", "a key", remedy)
    if grouped:
        k, v = shared_heads(q, k), shared_heads(q, v)
    q, k, v = _same_lead(q, k, v)
    if not dropout and is_one_operator(q, mask):
        return meta.attention_with_lse(q, k, v, causal, scale, added_scores(mask, q.dtype))[0]
    wide = accumulation_dtype(q.dtype)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = meta.matmul(meta.cast(q, wide), meta.cast(k, wide), transpose_b=True) * factor
    weights = _weights(masked_scores(scores, mask, causal))
    if key is not None and dropout:
        weights = meta.dropout(weights, key, dropout)[0]
    return meta.cast(meta.matmul(weights, meta.cast(v, wide)), q.dtype)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False, causal: bool | None = None,
) -> Any:  # fmt: skip
    """`attention` with the arguments of torch's function of this name: (..., length, value features).

    query: (..., length, features); key: (..., keys, features); value: (..., keys, value features).
    attn_mask: broadcasts to (..., length, keys); bool, true where a query attends to a key, or numbers added to the
        scores.  dropout_p: share of the weights that are dropped at random.
    is_causal: query i attends to keys 0 to i only.  scale: None for 1 / sqrt(features).
    enable_gqa: neighbouring heads (axis -3) of the queries share keys and values.
    causal: deprecated, as a bool in place of attn_mask: the function then returns the pair of `attention_with_lse`."""
    if causal is not None or isinstance(attn_mask, bool):
        renamed = "scaled_dot_product_attention(causal=...) and its pair are now meta.attention_with_lse"
        warnings.warn(f"{renamed}; with is_causal=... it returns the result alone", DeprecationWarning, stacklevel=2)
        is_masked: Any = attn_mask if causal is None else causal
        return meta.attention_with_lse(query, key, value, is_masked, scale or dropout_p or None)
    seed = meta.random.next_key(query.device) if dropout_p else None
    return attention(query, key, value, attn_mask, is_causal, scale, dropout_p, seed, enable_gqa)


def shared_heads(q: T, x: T) -> T:
    """Keys or values with each head repeated for the heads of q that share it."""
    if q.ndim < 3 or x.ndim < 3 or x.shape[-3] == 0 or q.shape[-3] % x.shape[-3]:
        problem = f"'q' has shape {tuple(q.shape)}, keys or values {tuple(x.shape)}"
        raise ArgumentError("attention", problem, "heads (axis -3) of q that are a multiple of theirs")
    return meta.repeat(x, q.shape[-3] // x.shape[-3], -3)


def _same_lead(*tensors: T) -> tuple[T, ...]:
    """The tensors with their leading axes broadcast."""
    if min(t.ndim for t in tensors) < 2:
        return tensors  # the operator words the error
    try:
        lead = rules.broadcast_shapes(*(tuple(t.shape[:-2]) for t in tensors))
    except MetaError as error:
        error.attribute("attention")
        raise
    shapes = [(*lead, *t.shape[-2:]) for t in tensors]
    pairs = zip(tensors, shapes, strict=True)
    return tuple(t if rules.same_shape(tuple(t.shape), s) else meta.broadcast_to(t, s) for t, s in pairs)


def masked_scores(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The scores, -inf where a query does not attend."""
    if causal:
        length, keys = scores.shape[-2:]
        rows, columns = (meta.arange(0, n, 1, "int64", scores.device) for n in (length, keys))
        scores = meta.where(meta.less_equal(columns, meta.expand_dims(rows, 1)), scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype == "bool":
        return meta.where(mask, scores, -math.inf)
    return scores + meta.cast(mask, scores.dtype)


def is_one_operator(q: Tensor, mask: Tensor | None) -> bool:
    """Whether one operator attends: with a mask on GPUs, whose libraries keep no scores in memory; on CPUs the scores
    fuse with the mask."""
    return mask is None or (q.device.kind == "cuda" and q.dtype in HALVES)


def added_scores(mask: Tensor | None, dtype: str) -> Tensor | None:
    """A mask as numbers that are added to the scores."""
    if mask is None or mask.dtype == dtype:
        return mask
    if mask.dtype == "bool":
        return meta.where(mask, meta.zeros((), dtype, mask.device), meta.full((), -math.inf, dtype, mask.device))
    return meta.cast(mask, dtype)


def _weights(scores: T) -> T:
    """softmax(scores), 0 in rows whose scores are all -inf."""
    is_hidden = meta.equal(meta.max(meta.stop_gradient(scores), -1, True), -math.inf)
    return meta.where(is_hidden, 0, meta.softmax(meta.where(is_hidden, 0, scores), -1))


def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, project: Tensor, project_bias: Tensor | None, out: Tensor,
    out_bias: Tensor, *, mask: Tensor | None = None, key_padding_mask: Tensor | None = None,
    bias_k: Tensor | None = None, bias_v: Tensor | None = None, add_zero: bool = False, causal: bool = False,
    dropout: float = 0.0, seed: object = None, need_weights: bool = False, average_weights: bool = True,
) -> Any:  # fmt: skip
    """Attention in several heads with projections, as torch's multi_head_attention_forward.

    query: (length, batch, features); key, value: (keys, batch, features); without a batch of rank 2.
    project: weights of the projections of queries, keys and values, (3 * features, features), or three matrices;
        project_bias: (3 * features,); out, out_bias: the projection of the result.
    mask: (length, keys) or (batch * heads, length, keys); key_padding_mask: (batch, keys). Bool ones are true where a
        key is hidden, others are added to the scores.
    bias_k, bias_v: a further key and value, (1, 1, features); add_zero: a further key and value of zeros.
    seed: the key of `meta.random.next_key()` by which weights are dropped.
    need_weights: return a pair with the weights, (batch, length, keys), or by heads without average_weights.
    Raises ArgumentError for heads that do not divide the features and dropout without a seed."""
    if query.ndim == 2:
        query, key, value = (meta.expand_dims(t, 1) for t in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = meta.expand_dims(key_padding_mask, 0)
        y, weights = multi_head_attention(
            query, key, value, heads, project, project_bias, out, out_bias, mask=mask,
            key_padding_mask=key_padding_mask, bias_k=bias_k, bias_v=bias_v, add_zero=add_zero, causal=causal,
            dropout=dropout, seed=seed, need_weights=True, average_weights=average_weights,
        )  # fmt: skip
        y = meta.squeeze(y, 1)
        return (y, meta.squeeze(weights, 0)) if need_weights else y
    features = out.shape[1]
    if heads < 1 or features % heads:
        problem = f"heads is {heads}, features are {features}"
        raise ArgumentError("multi_head_attention", problem, "heads that divide the features")
    if dropout and seed is None:
        problem = f"dropout is {dropout}, seed is None"
        raise ArgumentError("multi_head_attention", problem, "a key", "pass seed=meta.random.next_key()")
    matrices: Any = meta.split(project, 3, 0) if hasattr(project, "shape") else project
    biases: Any = (None,) * 3 if project_bias is None else meta.split(project_bias, 3, 0)
    triples = zip((query, key, value), matrices, biases, strict=True)
    q, k, v = (meta.dense(x, w, b) for x, w, b in triples)
    k, extra = _with_more_keys(k, bias_k, add_zero)
    v, _ = _with_more_keys(v, bias_v, add_zero)
    q, k, v = (_by_heads(t, heads) for t in (q, k, v))
    scores = meta.matmul(q, k, transpose_b=True) * (1 / math.sqrt(features // heads))
    scores = _hidden(scores, mask, key_padding_mask, extra, causal)
    weights = _weights(scores)
    if dropout:
        weights = meta.dropout(weights, seed, dropout)[0]
    merged = meta.transpose(meta.matmul(weights, v), (2, 0, 1, 3))
    y = meta.dense(meta.reshape(merged, (*merged.shape[:2], features)), out, out_bias)
    if not need_weights:
        return y
    return y, meta.mean(weights, 1) if average_weights else weights


def _by_heads(x: T, heads: int) -> T:
    """(length, batch, features) as (batch, heads, length, features / heads)."""
    length, batch, features = x.shape
    return meta.transpose(meta.reshape(x, (length, batch, heads, features // heads)), (1, 2, 0, 3))


def _with_more_keys(x: Tensor, bias: Tensor | None, add_zero: bool) -> tuple[Any, int]:
    """Keys or values (keys, batch, features) with further ones, and how many these are."""
    parts = [x]
    if bias is not None:
        parts.append(meta.broadcast_to(bias, (1, *x.shape[1:])))
    if add_zero:
        parts.append(meta.zeros((1, *x.shape[1:]), x.dtype, x.device))
    return (meta.concatenate(parts, 0) if len(parts) > 1 else x), len(parts) - 1


def _hidden(scores: Tensor, mask: Tensor | None, key_padding_mask: Tensor | None, extra: int, causal: bool) -> Any:
    """The scores (batch, heads, length, keys) with masks, which say nothing of `extra` last keys, applied."""
    batch, heads, length, keys = scores.shape
    key_count = keys - extra
    masks: list[Any] = []
    if mask is not None:
        masks.append(meta.reshape(mask, (batch, heads, length, key_count)) if mask.ndim == 3 else mask)
    if key_padding_mask is not None:
        masks.append(meta.reshape(key_padding_mask, (batch, 1, 1, key_count)))
    for part in masks:
        widths = [(0, 0)] * (part.ndim - 1) + [(0, extra)]
        padded = meta.pad(part, widths) if extra else part
        scores = masked_scores(scores, meta.logical_not(padded) if padded.dtype == "bool" else padded, False)
    return masked_scores(scores, None, True) if causal else scores
