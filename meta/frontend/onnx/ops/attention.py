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
    """The result, keys and values with the past ones, and scores at the stage that qk_matmul_output_mode says."""
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
    returns_scores = len(node.outputs) > 3 and bool(node.outputs[3])
    precision = None if softmax_precision is None else dtype_of("Attention", softmax_precision)
    if softcap or returns_scores or precision == "float64":
        mask = mask.narrowed(_visible(queries, keys, offset, -1, 0)) if causal else mask
        y, scores = _by_steps(q, k, v, mask, scale, softcap, precision, qk_matmul_output_mode)
    else:
        y, scores = meta.attention(q, k, v, mask.joined(q.dtype), causal, scale, grouped=q.shape[1] != k.shape[1]), None
    return (y if Q.ndim == 4 else joined_heads(y)), k, v, scores


def _scores(q: Tensor, k: Tensor, scale: float | None) -> Any:
    """q @ k^T * scale; each operand is multiplied by the root of the scale."""
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    return meta.matmul(meta.multiply(q, root), meta.multiply(k, root), transpose_b=True)


def _shared(q: Tensor, x: Tensor) -> Any:
    """Keys or values, repeated for the heads of q that share them."""
    times = q.shape[1] // x.shape[1]
    return x if times == 1 else meta.repeat(x, times, 1)


def _by_steps(
    q: Tensor, k: Tensor, v: Tensor, mask: _Mask, scale: float | None, softcap: float, precision: str | None, mode: int
) -> tuple[Any, Any]:
    """Attention with its scores: 0 as they are, 1 after the cap, 2 after the mask, 3 after softmax."""
    stages = [_scores(q, _shared(q, k), scale)]
    capped = stages[0]
    if softcap:
        capped = meta.multiply(meta.tanh(meta.divide(capped, softcap)), softcap)
    stages.append(capped)
    bias = mask.joined(q.dtype)
    masked, hidden = capped, None
    if bias is not None:
        numbers = bias
        if bias.dtype == "bool":
            numbers = meta.where(bias, 0.0, meta.full_like(meta.cast(bias, q.dtype), -math.inf))
        masked = meta.add(capped, numbers)
        hidden = meta.equal(meta.max(numbers, -1, True), -math.inf)
    stages.append(masked)
    weights = meta.softmax(masked if precision is None else as_dtype(masked, precision), -1)
    if hidden is not None:
        weights = meta.where(hidden, meta.zeros_like(weights), weights)
    weights = as_dtype(weights, q.dtype)
    stages.append(weights)
    return meta.matmul(weights, _shared(q, v)), stages[mode]


@row("ai.onnx.preview::FlexAttention")
def flex_attention(
    node: Node, Q: Tensor, K: Tensor, V: Tensor, *, score_mod: Any = None, prob_mod: Any = None,
    scale: float | None = None, softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    """Attention whose scores and probabilities subgraphs change."""
    if score_mod is None and prob_mod is None and softmax_precision is None:
        return meta.attention(Q, K, V, scale=scale, grouped=Q.shape[1] != K.shape[1])
    wide = "float64" if Q.dtype == "float64" else "float32"
    if softmax_precision is not None:
        wide = dtype_of("FlexAttention", softmax_precision)
    factor = 1 / math.sqrt(Q.shape[-1]) if scale is None else scale
    q, k = as_dtype(Q, wide), as_dtype(_shared(Q, K), wide)
    scores = meta.multiply(meta.matmul(q, k, transpose_b=True), factor)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = meta.softmax(scores, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return as_dtype(meta.matmul(weights, as_dtype(_shared(Q, V), wide)), Q.dtype)


@row("RotaryEmbedding", since=23)
def rotary_embedding(
    node: Node, X: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None = None, *,
    interleaved: int = 0, num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    """Pairs of features turned by the angles of their positions (J. Su et al., "RoFormer", 2021). Pairs are neighbours
    if interleaved, otherwise of the first and the second half. The features past rotary_embedding_dim stay."""
    x = X
    if X.ndim == 4:
        x = meta.transpose(X, (0, 2, 1, 3))
    elif num_heads:
        x = meta.reshape(X, (X.shape[0], X.shape[1], num_heads, X.shape[2] // num_heads))
    else:
        raise TypeInferenceError(
            "RotaryEmbedding", f"X has {X.ndim} axes, and num_heads is missing", "4 axes or num_heads"
        )
    size = x.shape[3]
    turned, rest = (x, None) if rotary_embedding_dim in (0, size) else meta.split(x, (rotary_embedding_dim,), 3)
    cos, sin = cos_cache, sin_cache
    if position_ids is not None:
        cos, sin = meta.take(cos, position_ids, 0), meta.take(sin, position_ids, 0)
    cos, sin = meta.expand_dims(cos, 2), meta.expand_dims(sin, 2)
    half = turned.shape[3] // 2
    if interleaved:
        pairs = meta.reshape(turned, (*turned.shape[:3], half, 2))
        first, second = meta.select(pairs, 4, 0), meta.select(pairs, 4, 1)
    else:
        first, second = meta.split(turned, 2, 3)
    real = meta.subtract(meta.multiply(cos, first), meta.multiply(sin, second))
    imaginary = meta.add(meta.multiply(sin, first), meta.multiply(cos, second))
    if interleaved:
        y = meta.reshape(meta.stack([real, imaginary], 4), turned.shape)
    else:
        y = meta.concatenate([real, imaginary], 3)
    y = y if rest is None else meta.concatenate([y, rest], 3)
    return meta.transpose(y, (0, 2, 1, 3)) if X.ndim == 4 else meta.reshape(y, X.shape)


_RULES = ("linear", "gated", "delta", "gated_delta")


@row("LinearAttention", since=27)
def linear_attention(
    node: Node, query: Any, key: Any, value: Any, past_state: Any = None, decay: Any = None, beta: Any = None, *,
    q_num_heads: int, kv_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta", chunk_size: int = 64,
) -> Any:  # fmt: skip
    """Step by step: the state decays, takes up the outer product of key and value (with a delta rule, of what the
    state does not give for the key), and is read by the query. It is kept in float32."""
    if update_rule not in _RULES:
        refuse(node, f"update_rule is {update_rule!r}", " or ".join(_RULES))
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise TypeInferenceError("LinearAttention", f"{update_rule} without {'decay' if decay is None else 'beta'}",
                                 "an input")  # fmt: skip
    q, k, v = (_by_step(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    batch, size, width = query.shape[0], k.shape[3], v.shape[3]
    xs = {"q": q, "k": k, "v": v}
    if gated:
        xs["g"] = _by_step(decay, kv_num_heads)
    if delta:
        xs["b"] = _by_step(beta, beta.shape[2])
    factor = scale or 1 / math.sqrt(size)
    shared = q_num_heads // kv_num_heads

    def step(state: Any, x: Tensor) -> Any:
        if gated:
            state = meta.multiply(state, meta.expand_dims(meta.exp(x["g"]), 3))
        update = x["v"]
        if delta:
            predicted = meta.squeeze(meta.matmul(meta.expand_dims(x["k"], 2), state), 2)
            update = meta.multiply(x["b"], meta.subtract(update, predicted))
        state = meta.add(state, meta.multiply(meta.expand_dims(x["k"], 3), meta.expand_dims(update, 2)))
        read = state if shared == 1 else meta.repeat(state, shared, 1)
        return state, meta.squeeze(meta.matmul(meta.expand_dims(x["q"], 2), read), 2)

    shape = (batch, kv_num_heads, size, width)
    first = meta.zeros(shape, "float32", query.device) if past_state is None else as_dtype(past_state, "float32")
    last, rows = meta.scan(step, first, xs)  # rows: (time, batch, heads, features)
    y = meta.reshape(
        meta.transpose(meta.multiply(rows, factor), (1, 0, 2, 3)), (batch, query.shape[1], q_num_heads * width)
    )
    return as_dtype(y, query.dtype), as_dtype(last, (query if past_state is None else past_state).dtype)


def _by_step(x: Any, heads: int) -> Any:
    """(batch, time, heads * features) as (time, batch, heads, features), in float32."""
    split = meta.reshape(as_dtype(x, "float32"), (x.shape[0], x.shape[1], heads, x.shape[2] // heads))
    return meta.transpose(split, (1, 0, 2, 3))
