"""Multi-head attention (A. Vaswani et al., "Attention Is All You Need", 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn import init
from meta.nn.dropout import Dropout
from meta.nn.linear import Linear


class MultiHeadAttention(Model):
    """Attention of queries (batch, length, embed_dim) to keys and values, in num_heads heads.

    dropout: probability with which attention weights are dropped in train mode.  bias: whether projections have one.
    kdim, vdim: features of keys and values, if they are others than embed_dim.
    batch_first: False for tensors of shape (length, batch, features).
    The projection of queries, keys and values is `project`, with w of shape (3 * embed_dim, embed_dim), or, with kdim
    or vdim, the arrays q_proj_weight, k_proj_weight, v_proj_weight and b. Initialised as in torch: uniformly in
    +-sqrt(6 / (fan in + fan out)), biases 0. Raises ArgumentError unless `num_heads` divides `embed_dim`."""

    _input_size = ("embed_dim", -1)
    in_proj_weight, in_proj_bias, out_proj = Alias("project.w"), Alias("project.b"), Alias("out")
    _torch_names: ClassVar[Mapping[str, str]] = {"b": "in_proj_bias"}

    def build(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = True,
    ) -> None:
        _check_heads(embed_dim, num_heads)
        self.embed_dim, self.heads, self.batch_first = embed_dim, num_heads, batch_first
        dims = (embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim)
        self.project = Linear(embed_dim, 3 * embed_dim, bias) if dims == (embed_dim, embed_dim) else None
        if self.project is not None:
            init.xavier_uniform_(self.project.w)
            if self.project.b is not None:
                init.zeros_(self.project.b)
        else:
            self.q_proj_weight = init.xavier_uniform_(meta.zeros((embed_dim, embed_dim)))
            self.k_proj_weight = init.xavier_uniform_(meta.zeros((embed_dim, dims[0])))
            self.v_proj_weight = init.xavier_uniform_(meta.zeros((embed_dim, dims[1])))
            self.b = meta.zeros((3 * embed_dim,)) if bias else None
        self.out = Linear(embed_dim, embed_dim, bias)
        if self.out.b is not None:
            init.zeros_(self.out.b)
        self.dropout = Dropout(dropout) if dropout else None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
    ) -> Any:
        """Attention of `query` to `key` and `value`, or to itself without them; (batch, length, embed_dim).

        key_padding_mask: (batch, keys); mask: broadcasts to (batch, heads, length, keys), or (batch * heads, length,
            keys). In a bool mask, true means that a key is hidden; a floating mask is added to the scores. A query
            whose keys are all hidden attends to all of them equally. attn_mask: torch's name of `mask`.
        is_causal: whether query i attends only to keys 0 to i.
        need_weights: return a pair with the attention weights, (batch, length, keys), or by heads without
            average_attn_weights. Raises ArgumentError for a key without a value and for two masks."""
        if query.ndim != 3:
            problem = f"query has shape {tuple(query.shape)}"
            raise ArgumentError("MultiHeadAttention", problem, "(batch, length, embed_dim)", "add a batch: query[None]")
        mask = only_mask("MultiHeadAttention", mask=mask, attn_mask=attn_mask)
        if (key is None) != (value is None):
            remedy = "a mask is passed as mask=" if value is None else ""
            raise ArgumentError("MultiHeadAttention", "one of key and value is None", "both or neither", remedy)
        q, k, v = self._projected(query, key, value)
        drops = self.dropout is not None and self.training
        if mask is None and key_padding_mask is None and not drops and not need_weights:
            return self._merged(meta.scaled_dot_product_attention(q, k, v, is_causal=is_causal))
        scores = meta.matmul(q, k, transpose_b=True) * (1 / math.sqrt(self.embed_dim // self.heads))
        weights = meta.softmax(_hidden(scores, mask, key_padding_mask, is_causal))
        weights = weights if self.dropout is None else self.dropout(weights)
        result = self._merged(weights @ v)
        if not need_weights:
            return result
        return result, meta.mean(weights, 1) if average_attn_weights else weights

    def _projected(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by heads, (batch, heads, length, features)."""
        if self.project is not None and (key is None or (key is query and value is query)):
            query = query if self.batch_first else meta.swap_axis(query, 0, 1)
            batch, length, _ = query.shape
            qkv = self.project(query).reshape((batch, length, 3, self.heads, self.embed_dim // self.heads))
            q, k, v = (part.squeeze(0) for part in meta.split(qkv.transpose((2, 0, 3, 1, 4)), 3, 0))
            return q, k, v
        inputs = (query, query, query) if key is None else (query, key, value)
        weights, biases = self._weights()
        q, k, v = (self._by_heads(meta.dense(x, w, b)) for x, w, b in zip(inputs, weights, biases, strict=True))
        return q, k, v

    def _weights(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The weights and the biases of the projections of queries, keys and values."""
        if self.project is None:
            weights, b = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight), self.b
        else:
            weights, b = meta.split(self.project.w, 3, 0), self.project.b
        return weights, (None,) * 3 if b is None else meta.split(b, 3, 0)

    def _by_heads(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else meta.swap_axis(x, 0, 1)
        return x.reshape((*x.shape[:2], self.heads, self.embed_dim // self.heads)).transpose((0, 2, 1, 3))

    def _merged(self, attended: Tensor) -> Any:
        """The output projection of (batch, heads, length, features)."""
        merged = attended.transpose((0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3))
        return self.out(merged.reshape((*merged.shape[:2], self.embed_dim)))


def _check_heads(embed_dim: int, num_heads: int) -> None:
    if num_heads < 1 or embed_dim % num_heads:
        whole = [n for n in range(1, embed_dim + 1) if embed_dim % n == 0]
        near = min(whole, key=lambda n: abs(n - num_heads), default=1)
        problem = f"num_heads is {num_heads}, embed_dim is {embed_dim}"
        raise ArgumentError("MultiHeadAttention", problem, "heads that divide the features", f"use num_heads={near}")


def only_mask(layer: str, **masks: Tensor | None) -> Any:
    """The value of the one of two names of an argument that is passed. Raises ArgumentError for both."""
    passed = {name: mask for name, mask in masks.items() if mask is not None}
    if len(passed) > 1:
        problem = f"{' and '.join(passed)} are passed, which are one argument"
        raise ArgumentError(layer, problem, f"one of {', '.join(masks)}")
    return next(iter(passed.values()), None)


def _hidden(scores: Tensor, mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool) -> Tensor:
    """The scores (batch, heads, length, keys) with masks applied."""
    batch, heads, length, keys = scores.shape
    if is_causal:
        rows, columns = meta.arange(length, device=scores.device), meta.arange(keys, device=scores.device)
        scores = _masked(scores, columns > meta.expand_dims(rows, 1))
    if mask is not None:
        by_heads = mask.ndim == 3 and mask.shape[0] not in (1, heads)
        scores = _masked(scores, mask.reshape((batch, heads, length, keys)) if by_heads else mask)
    if key_padding_mask is not None:
        scores = _masked(scores, key_padding_mask.reshape((batch, 1, 1, keys)))
    return scores


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores that are low where a bool mask is true, or plus a floating mask."""
    if mask.dtype != "bool":
        return scores + mask
    return meta.where(mask, -65504.0 if scores.dtype == "float16" else -1e30, scores)
