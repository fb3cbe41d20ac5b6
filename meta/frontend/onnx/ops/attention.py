"""Attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import dtype_of
from meta.functional._checks import as_dtype


def separate_heads(x: Tensor, count: int | None) -> Any:
    """(batch, length, heads * features) as (batch, heads, length, features)."""
    if x.ndim == 4:
        return x
    if not count or x.ndim != 3:
        raise TypeInferenceError("Attention", f"an input of {x.ndim} axes, and {count} heads",
                                 "4 axes, or 3 and numbers of heads")  # fmt: skip
    split = meta.reshape(x, (x.shape[0], x.shape[1], count, x.shape[2] // count))
    return meta.transpose(split, (0, 2, 1, 3))


def joined_heads(x: Tensor) -> Any:
    """(batch, heads, length, features) as (batch, length, heads * features)."""
    y = meta.transpose(x, (0, 2, 1, 3))
    return meta.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


@dataclass(frozen=True, slots=True)
class _Mask:
    """The masks of keys. allowed: bool, true where a query attends.  added: to the scores. Both may be None."""

    allowed: Any
    added: Any

    def narrowed(self, allowed: Any) -> _Mask:
        narrowed = allowed if self.allowed is None else meta.logical_and(self.allowed, allowed)
        return _Mask(narrowed, self.added)

    def joined(self, dtype: str) -> Any:
        """One mask: of bools if nothing is added, otherwise numbers, -inf where hidden."""
        if self.added is None:
            return self.allowed
        added = as_dtype(self.added, dtype)
        return added if self.allowed is None else meta.where(self.allowed, added, meta.full_like(added, -math.inf))


def _given_mask(mask: Tensor | None, keys: Any) -> _Mask:
    """The mask of the node, extended to all keys: those past its end are hidden."""
    if mask is None:
        return _Mask(None, None)
    more = keys - mask.shape[-1]
    if not isinstance(more, int) or more > 0:
        width = ((0, 0),) * (mask.ndim - 1) + ((0, more),)
        hidden = False if mask.dtype == "bool" else -math.inf
        mask = meta.pad(mask, width, hidden)
    return _Mask(mask, None) if mask.dtype == "bool" else _Mask(None, mask)


def _visible(queries: Any, keys: Any, offset: Any, left: int, right: int) -> Any:
    """Where a key is at most `left` places before and `right` after its query, which is `offset` places further on;
    -1 sets no limit."""
    rows = meta.add(meta.reshape(meta.arange(0, queries), (-1, 1)), offset)
    ahead = meta.subtract(meta.arange(0, keys), rows)
    out: Any = None
    if left >= 0:
        out = meta.greater_equal(ahead, -left)
    if right >= 0:
        low = meta.less_equal(ahead, right)
        out = low if out is None else meta.logical_and(out, low)
    return out


@row("Attention", since=23)
def attention(
    node: Node, Q: Tensor, K: Tensor, V: Tensor, attn_mask: Any = None, past_key: Any = None, past_value: Any = None,
    nonpad_kv_seqlen: Tensor | None = None, *, is_causal: int = 0, kv_num_heads: int | None = None,
    q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, scale: float | None = None, softcap: float = 0.0,
    softmax_precision: int | None = None, left_window_size: int = -1, right_window_size: int = -1,
) -> Any:  # fmt: skip
    """The result, and keys and values with the past ones."""
    returns_scores = len(node.outputs) > 3 and bool(node.outputs[3])
    wide = softmax_precision is not None and dtype_of("Attention", softmax_precision) == "float64"
    if softcap or returns_scores or wide:
        return NotImplemented
    q, k, v = separate_heads(Q, q_num_heads), separate_heads(K, kv_num_heads), separate_heads(V, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        k, v = meta.concatenate([past_key, k], 2), meta.concatenate([past_value, v], 2)
    queries, keys = q.shape[2], k.shape[2]
    mask, offset = _given_mask(attn_mask, keys), past
    if nonpad_kv_seqlen is not None:
        valid = meta.reshape(as_dtype(nonpad_kv_seqlen, "int64"), (-1, 1, 1, 1))
        mask = mask.narrowed(meta.less(meta.arange(0, keys), valid))
        offset = meta.subtract(valid, queries) if past_key is None else past
    causal = bool(is_causal)
    plain = isinstance(offset, int) and offset == 0
    if left_window_size >= 0 or right_window_size >= 0 or (causal and not plain):
        right = 0 if causal else right_window_size
        mask, causal = mask.narrowed(_visible(queries, keys, offset, left_window_size, right)), False
    y = meta.attention(q, k, v, mask.joined(q.dtype), causal, scale, grouped=q.shape[1] != k.shape[1])
    return (y if Q.ndim == 4 else joined_heads(y)), k, v


@row("ai.onnx.preview::FlexAttention")
def flex_attention(
    node: Node, Q: Tensor, K: Tensor, V: Tensor, *, score_mod: Any = None, prob_mod: Any = None,
    scale: float | None = None, softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    if score_mod is None and prob_mod is None and softmax_precision is None:
        return meta.attention(Q, K, V, scale=scale, grouped=Q.shape[1] != K.shape[1])
    return NotImplemented


@row("RotaryEmbedding", since=23)
def rotary_embedding(
    node: Node, X: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None = None, *,
    interleaved: int = 0, num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    if X.ndim != 4 and not num_heads:
        raise TypeInferenceError(
            "RotaryEmbedding", f"X has {X.ndim} axes, and num_heads is missing", "4 axes or num_heads"
        )
    return NotImplemented


_RULES = ("linear", "gated", "delta", "gated_delta")


@row("LinearAttention", since=27)
def linear_attention(
    node: Node, query: Any, key: Any, value: Any, past_state: Any = None, decay: Any = None, beta: Any = None, *,
    q_num_heads: int, kv_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta", chunk_size: int = 64,
) -> Any:  # fmt: skip
    if update_rule not in _RULES:
        refuse(node, f"update_rule is {update_rule!r}", " or ".join(_RULES))
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise TypeInferenceError("LinearAttention", f"{update_rule} without {'decay' if decay is None else 'beta'}",
                                 "an input")  # fmt: skip
    return NotImplemented
