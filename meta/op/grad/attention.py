"""Gradients of attention and of its backward operator, as matrix products."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim, SymDim
from meta.op.grad.support import fit


def _attention_weights(
    q: Tensor, k: Tensor, lse: Tensor, causal: bool, scale: float | None, bias: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """p = exp(scale * q @ k^T + bias - lse) in the dtype of lse, with masked keys zero, and the scale."""
    factor = _default_scale(q.shape[-1], lse) if scale is None else scale
    scores = meta.matmul(_cast_to(q, lse), _cast_to(k, lse), transpose_b=True) * factor
    if bias is not None:
        scores = scores + _cast_to(bias, lse)
        lse = meta.where(meta.equal(lse, -math.inf), 0.0, lse)  # of rows that attend to nothing
    p = meta.exp(scores - meta.expand_dims(lse, -1))
    if not causal:
        return p, factor
    rows = meta.arange(q.shape[-2], device=q.device)
    columns = meta.arange(k.shape[-2], device=q.device)
    return meta.where(meta.expand_dims(rows, 1) >= columns, p, 0.0), factor


def _default_scale(depth: Dim, like: Tensor) -> Any:
    """1 / sqrt(depth): a number, or for a symbolic size a 0-d tensor of the dtype of `like`."""
    if isinstance(depth, SymDim):
        return meta.rsqrt(meta.full((), depth, like.dtype, like.device))
    return 1 / math.sqrt(depth)


def _cast_to(x: Tensor, like: Tensor) -> Tensor:
    return x if x.dtype == like.dtype else meta.cast(x, like.dtype)


def _transposed_matmul(x: Tensor, y: Tensor) -> Tensor:
    """x^T @ y."""
    return meta.matmul(x, y, transpose_a=True)


def _sum_rows(x: Tensor) -> Tensor:
    return meta.sum(x, -1, True)


def attention_grad(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor | None, y_0: Tensor, y_1: Tensor,
    dy_0: Tensor, dy_1: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients with respect to q, k and v. The result y_1 (lse) has a gradient in second order only."""
    dq, dk, dv = meta.attention_with_lse_dx(q, k, v, y_0, y_1, dy_0, causal, scale, bias)
    if dy_1 is None:
        return dq, dk, dv
    p, factor = _attention_weights(q, k, y_1, causal, scale, bias)
    ds = p * meta.expand_dims(dy_1, -1) * factor
    return dq + fit(ds @ _cast_to(k, y_1), q), dk + fit(_transposed_matmul(ds, _cast_to(q, y_1)), k), dv


def attention_bias_grad(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Tensor, y_0: Tensor, y_1: Tensor,
    dy_0: Tensor, dy_1: Tensor | None,
) -> Tensor:  # fmt: skip
    """The gradient of the bias: the scores', summed where the bias is broadcast."""
    p, _ = _attention_weights(q, k, y_1, causal, scale, bias)
    dp = meta.matmul(_cast_to(dy_0, y_1), _cast_to(v, y_1), transpose_b=True)
    delta = _sum_rows(_cast_to(dy_0, y_1) * _cast_to(y_0, y_1))
    ds = p * (dp - delta if dy_1 is None else dp - delta + meta.expand_dims(dy_1, -1))
    return fit(ds, bias)


def attention_dx_grad(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, dy: Tensor, causal: bool, scale: float | None,
    bias: Tensor | None, dz_0: Tensor, dz_1: Tensor, dz_2: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Partial derivatives of L = <dz_0, dq> + <dz_1, dk> + <dz_2, dv> by the tensors, where dq = factor ds @ k,
    dk = factor ds^T @ q, dv = p^T @ dy, ds = p * (dp - delta), dp = dy @ v^T, delta = sum(dy * y) and
    p = exp(factor q @ k^T - lse)."""
    p, factor = _attention_weights(q, k, lse, causal, scale, bias)
    operands = [_cast_to(t, lse) for t in (q, k, v, y, dy, dz_0, dz_1, dz_2)]
    query, key, value, output, grad, to_dq, to_dk, to_dv = operands
    centred_dp = meta.matmul(grad, value, transpose_b=True) - _sum_rows(grad * output)
    ds = p * centred_dp
    to_ds = (meta.matmul(to_dq, key, transpose_b=True) + meta.matmul(query, to_dk, transpose_b=True)) * factor
    to_dp = to_ds * p
    to_delta = -_sum_rows(to_dp)
    to_p = to_ds * centred_dp + meta.matmul(grad, to_dv, transpose_b=True)
    to_scores = to_p * p
    return (
        fit((ds @ to_dk + to_scores @ key) * factor, q),
        fit((_transposed_matmul(ds, to_dq) + _transposed_matmul(to_scores, query)) * factor, k),
        fit(_transposed_matmul(to_dp, grad), v),
        fit(to_delta * grad, y),
        -meta.sum(to_scores, -1),
        fit(to_dp @ value + p @ to_dv + to_delta * output, dy),
        None if bias is None else fit(to_scores, bias),
    )
