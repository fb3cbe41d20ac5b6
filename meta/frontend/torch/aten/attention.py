"""Scaled dot-product attention: torch's function, and the operators that its backends are, with their gradients.

The backends compute the same; they differ in the results besides the output. Of those the logarithms of the sums of
exponentials are meta's `lse`; sequence lengths and random states are empty. Dropout inside of them is refused: it would
have to draw the same random numbers as the backward operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row, rows
from meta.frontend.torch.aten._values import in_dtype
from meta.functional.attention import added_scores, is_one_operator, masked_scores, shared_heads

rows({
    "_scaled_dot_product_flash_attention_for_cpu":
        lambda query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None:
            _attended(query, key, value, attn_mask, is_causal, scale, dropout_p),
    "_scaled_dot_product_flash_attention_for_cpu_backward":
        lambda grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None:
            _gradients(grad_out, query, key, value, out, logsumexp, attn_mask, is_causal, scale, dropout_p)[:3],
})  # fmt: skip


@row()
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    return meta.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _attended(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, dropout: float) -> tuple[Any, Any]:
    """The output, and lse: 0 in rows that attend to nothing."""
    if dropout:
        raise ArgumentError("attention", f"dropout_p is {dropout}", "0", "use torch's math attention in training")
    k, v = (x if x.shape[-3] == q.shape[-3] else shared_heads(q, x) for x in (k, v))
    if is_one_operator(q, mask):
        return meta.attention_with_lse(q, k, v, causal, scale, added_scores(mask, q.dtype))
    scores = _scores(q, k, mask, causal, scale)
    hidden = meta.equal(meta.max(scores, -1), -math.inf)
    lse = meta.where(hidden, 0, meta.logsumexp(scores, -1))
    weights = meta.exp(scores - meta.expand_dims(lse, -1))
    return in_dtype(meta.matmul(weights, in_dtype(v, scores.dtype)), q.dtype), lse


def _scores(q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    q, k = (in_dtype(x, accumulation_dtype(x.dtype)) for x in (q, k))
    return masked_scores(meta.matmul(q, k, transpose_b=True) * _factor(q, scale), mask, causal)


def _factor(q: Tensor, scale: float | None) -> Any:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _gradients(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, mask: Any, causal: bool, scale: float | None, dropout: float,
    *, of_mask: bool = False,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The gradients of q, k, v and, for the gradient of a mask, of the scores, else None. In place of lse there may be
    the weights, as torch's decomposition of the forward operator returns them."""
    if dropout:
        raise ArgumentError("attention", f"dropout_p is {dropout}", "0", "use torch's math attention in training")
    heads = k.shape[-3]
    whole_k, whole_v = (x if x.shape[-3] == q.shape[-3] else shared_heads(q, x) for x in (k, v))
    is_weights = lse.ndim == q.ndim
    if is_one_operator(q, mask) and not is_weights and not of_mask:
        bias = added_scores(mask, q.dtype)
        dq, dk, dv = meta.attention_with_lse_dx(q, whole_k, whole_v, y, lse, dy, causal, scale, bias)
        return dq, _per_head(dk, heads), _per_head(dv, heads), None
    if is_weights:
        p = in_dtype(lse, accumulation_dtype(q.dtype))
    else:
        p = meta.exp(_scores(q, whole_k, mask, causal, scale) - meta.expand_dims(lse, -1))
    wide = [in_dtype(x, p.dtype) for x in (q, whole_k, whole_v, y, dy)]
    query, keys, values, output, grad = wide
    ds = p * (meta.matmul(grad, values, transpose_b=True) - meta.sum(grad * output, -1, True))
    factor = _factor(query, scale)
    dq, dk = meta.matmul(ds, keys) * factor, meta.matmul(ds, query, transpose_a=True) * factor
    dv = meta.matmul(p, grad, transpose_a=True)
    gradients = (dq, _per_head(dk, heads), _per_head(dv, heads))
    return *(in_dtype(g, q.dtype) for g in gradients), ds


def _per_head(gradient: Any, heads: int) -> Any:
    """The gradient of keys or values that neighbouring heads of the queries share."""
    *batch, several, length, features = gradient.shape
    if several == heads:
        return gradient
    return meta.sum(meta.reshape(gradient, (*batch, heads, several // heads, length, features)), -3)


def _nothing(like: Any, dtype: str = "int64") -> Any:
    return meta.zeros((), dtype, like.device)


@row()
def _scaled_dot_product_flash_attention(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    """Output, lse, two sequence lengths that only nested tensors have, the two lengths, and random states."""
    y, lse = _attended(query, key, value, None, is_causal, scale, dropout_p)
    empty = _nothing(query)
    return y, lse, None, None, query.shape[-2], key.shape[-2], empty, empty, _nothing(query, query.dtype)


@row()
def _scaled_dot_product_flash_attention_backward(
    grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, cum_seq_q: Tensor, cum_seq_k: Tensor,
    max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Tensor, philox_offset: Tensor, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return _gradients(grad_out, query, key, value, out, logsumexp, None, is_causal, scale, dropout_p)[:3]


@row()
def _scaled_dot_product_cudnn_attention(
    query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    """As flash attention's results, with an axis behind the logarithms."""
    y, lse = _attended(query, key, value, attn_bias, is_causal, scale, dropout_p)
    empty = _nothing(query)
    return y, meta.expand_dims(lse, -1), None, None, query.shape[-2], key.shape[-2], empty, empty, None


@row()
def _scaled_dot_product_cudnn_attention_backward(
    grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, philox_seed: Tensor,
    philox_offset: Tensor, attn_bias: Any, cum_seq_q: Tensor, cum_seq_k: Tensor, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    lse = meta.squeeze(logsumexp, -1)
    return _gradients(grad_out, query, key, value, out, lse, attn_bias, is_causal, scale, dropout_p)[:3]


@row()
def _scaled_dot_product_efficient_attention(
    query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    y, lse = _attended(query, key, value, attn_bias, is_causal, scale, dropout_p)
    return y, lse, _nothing(query), _nothing(query)


@row()
def _scaled_dot_product_efficient_attention_backward(
    grad_out_: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor, out: Tensor, logsumexp: Tensor,
    philox_seed: Tensor, philox_offset: Tensor, dropout_p: float, grad_input_mask: Sequence[bool],
    is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    of_mask = bool(grad_input_mask[3])
    *gradients, ds = _gradients(
        grad_out_, query, key, value, out, logsumexp, attn_bias, is_causal, scale, dropout_p, of_mask=of_mask
    )
    bias = None if ds is None or not of_mask else in_dtype(meta.sum_to_size(ds, attn_bias.shape), attn_bias.dtype)
    return tuple(g if is_needed else None for g, is_needed in zip((*gradients, bias), grad_input_mask, strict=True))


@row()
def _scaled_dot_product_attention_math(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, dropout_mask: Tensor | None = None, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Output and weights. `dropout_mask` holds the weights that are kept."""
    k, v = (shared_heads(query, x) if enable_gqa else x for x in (key, value))
    weights = _safe_softmax(_scores(query, k, attn_mask, is_causal, scale), -1)
    if dropout_mask is not None:
        weights = meta.where(dropout_mask, weights / (1 - dropout_p), 0)
    elif dropout_p:
        weights = meta.dropout(weights, meta.random.next_key(query.device), dropout_p)[0]
    return tuple(in_dtype(x, query.dtype) for x in (meta.matmul(weights, in_dtype(v, weights.dtype)), weights))


@row()
def _transformer_encoder_layer_fwd(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor,
    norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor,
    ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """A layer of nn.TransformerEncoder in inference. src: (batch, tokens, features)."""
    if mask is not None:
        raise ArgumentError("attention", "a layer of a transformer has a mask", "none")

    def attended(x: Tensor) -> Any:
        batch, tokens, width = x.shape
        heads = meta.reshape(meta.dense(x, qkv_weight, qkv_bias), (batch, tokens, 3 * num_heads, width // num_heads))
        q, k, v = meta.split(meta.transpose(heads, (0, 2, 1, 3)), 3, 1)
        y = meta.transpose(meta.attention(q, k, v), (0, 2, 1, 3))
        return meta.dense(meta.reshape(y, (batch, tokens, width)), proj_weight, proj_bias)

    def transformed(x: Tensor) -> Any:
        hidden = meta.dense(x, ffn_weight_1, ffn_bias_1)
        return meta.dense(meta.gelu(hidden) if use_gelu else meta.relu(hidden), ffn_weight_2, ffn_bias_2)

    x = src
    for part, weight, bias in ((attended, norm_weight_1, norm_bias_1), (transformed, norm_weight_2, norm_bias_2)):
        if norm_first:
            x = x + part(meta.layer_norm(x, weight, bias, (-1,), eps))
        else:
            x = meta.layer_norm(x + part(x), weight, bias, (-1,), eps)
    return x


@row()
def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    """softmax, 0 along lines whose elements are all -inf."""
    x = in_dtype(self, dtype)
    is_hidden = meta.equal(meta.max(meta.stop_gradient(x), dim, True), -math.inf)
    return meta.where(is_hidden, 0, meta.softmax(meta.where(is_hidden, 0, x), dim))
