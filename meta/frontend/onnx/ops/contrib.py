"""Operators of onnxruntime's domain that its optimiser writes into transformers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops.attention import joined_heads, separate_heads
from meta.functional._checks import as_dtype

_DOMAIN = "com.microsoft"


def _plus(x: Any, *others: Tensor | None) -> Any:
    for other in others:
        x = x if other is None else meta.add(x, other)
    return x


row(f"{_DOMAIN}::Gelu")(lambda node, X: meta.gelu(X))
row(f"{_DOMAIN}::BiasGelu")(lambda node, A, B: meta.gelu(meta.add(A, B)))
row(f"{_DOMAIN}::FastGelu")(lambda node, X, bias=None: meta.gelu(_plus(X, bias), "tanh"))
row(f"{_DOMAIN}::QuickGelu")(lambda node, X, *, alpha=1.702: meta.multiply(X, meta.sigmoid(meta.multiply(X, alpha))))


@row(f"{_DOMAIN}::FusedMatMul")
def fused_matmul(
    node: Node, A: Tensor, B: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:  # fmt: skip
    """alpha * A @ B. transBatchA, transBatchB: whether the axis of rows comes before the axes of the batch."""
    a, b = (
        meta.transpose(x, (*range(1, x.ndim - 1), 0, x.ndim - 1)) if first else x
        for x, first in ((A, transBatchA), (B, transBatchB))
    )
    return meta.multiply(meta.matmul(a, b, bool(transA), bool(transB)), alpha)


@row(f"{_DOMAIN}::MatMulInteger16")
def matmul_integer_16(node: Node, A: Tensor, B: Tensor) -> Any:
    a, b = (as_dtype(x, "uint32" if x.dtype.startswith("u") else "int32") for x in (A, B))
    return meta.matmul(a, b)


@row(f"{_DOMAIN}::SkipLayerNormalization")
def skip_layer_normalization(
    node: Node, input: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None, *,
    epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """The normalised sum, mean and reciprocal deviation of its rows, and the sum."""
    total = _plus(input, skip, bias)
    mean, var = meta.mean(total, -1, True), meta.var(total, -1, 0, True)
    return meta.layer_norm(total, gamma, beta, -1, epsilon), mean, meta.rsqrt(meta.add(var, epsilon)), total


@row(f"{_DOMAIN}::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    node: Node, input: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> Any:
    """The sum divided by the root of its mean square, its mean (left out), that root's reciprocal, and the sum."""
    total = _plus(input, skip, bias)
    scale = meta.rsqrt(meta.add(meta.mean(meta.square(total), -1, True), epsilon))
    return meta.rms_norm(total, gamma, -1, epsilon), None, scale, total


@row(f"{_DOMAIN}::EmbedLayerNormalization")
def embed_layer_normalization(
    node: Node, input_ids: Tensor, segment_ids: Tensor | None, word_embedding: Tensor, position_embedding: Tensor,
    segment_embedding: Tensor | None, gamma: Tensor, beta: Tensor, mask: Tensor | None = None,
    position_ids: Tensor | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> Any:  # fmt: skip
    """The normalised sum of embeddings, the number of tokens that the mask keeps in each row, and the sum."""
    if mask_index_type:
        refuse(node, f"mask_index_type is {mask_index_type}", "0")
    positions = meta.arange(0, input_ids.shape[1]) if position_ids is None else position_ids
    total = meta.add(meta.take(word_embedding, input_ids, 0), meta.take(position_embedding, positions, 0))
    if segment_ids is not None and segment_embedding is not None:
        total = meta.add(total, meta.take(segment_embedding, segment_ids, 0))
    count = meta.zeros((input_ids.shape[0],), "int32") if mask is None else meta.sum(mask, 1)
    return meta.layer_norm(total, gamma, beta, -1, epsilon), as_dtype(count, "int32"), total


@row(f"{_DOMAIN}::Attention")
def attention(
    node: Node, input: Tensor, weights: Tensor, bias: Tensor | None = None, mask_index: Tensor | None = None,
    past: Tensor | None = None, attention_bias: Tensor | None = None, *, num_heads: int, unidirectional: int = 0,
    qkv_hidden_sizes: Sequence[int] = (), mask_filter_value: float = -10000.0, scale: float | None = None,
) -> Any:  # fmt: skip
    """Self-attention with the product that makes queries, keys and values; then all keys and values, the past ones
    first. mask_index: lengths of the rows, or 0 where a key is hidden: mask_filter_value is added there."""
    hidden = weights.shape[1]
    sizes = list(qkv_hidden_sizes) or [hidden // 3] * 3
    product = _plus(meta.matmul(input, weights), bias)
    q, k, v = (separate_heads(x, num_heads) for x in meta.split(product, tuple(accumulate(sizes[:-1])), -1))
    if past is not None:
        k, v = (meta.concatenate([past[i], x], 2) for i, x in enumerate((k, v)))
    queries, keys = q.shape[2], k.shape[2]
    mask = _added_mask(node, mask_index, keys, mask_filter_value, q.dtype)
    mask = attention_bias if mask is None else _plus(mask, attention_bias)
    causal = bool(unidirectional) and queries == keys
    if unidirectional and not causal:
        rows = meta.add(meta.expand_dims(meta.arange(0, queries), 1), keys - queries)
        visible = meta.where(meta.less_equal(meta.arange(0, keys), rows), 0.0, float("-inf"))
        mask = _plus(as_dtype(visible, q.dtype), mask)
    y = joined_heads(meta.attention(q, k, v, mask, causal, scale or None))
    return y, meta.stack([k, v], 0)


def _added_mask(node: Node, mask: Tensor | None, keys: Any, hidden: float, dtype: str) -> Any:
    """The numbers that a mask adds to scores of shape (batch, heads, queries, keys)."""
    if mask is None:
        return None
    if mask.ndim == 1:
        mask = meta.less(meta.arange(0, keys), meta.expand_dims(mask, 1))
    if mask.ndim > 3:
        refuse(node, f"mask_index has {mask.ndim} axes", "1 to 3")
    kept = meta.expand_dims(mask, (1, 2) if mask.ndim == 2 else (1,))
    return as_dtype(meta.where(meta.not_equal(kept, 0), 0.0, hidden), dtype)
