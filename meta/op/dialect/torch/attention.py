"""Attention by ATen: in blocks of keys on the CPU and for float32 on CUDA, else by matrix products with all scores in
memory. Halves are computed in float32."""

from __future__ import annotations

import math
from typing import Any

import torch

from meta.ir.expr import CallInfo
from meta.op.dialect.torch import DIALECT

_blocked: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_blocked_dx: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_efficient: Any = torch.ops.aten._scaled_dot_product_efficient_attention.default
_efficient_dx: Any = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default


def _scaled_scores(q: Any, k: Any, causal: bool, scale: float | None, bias: Any) -> tuple[Any, float]:
    """The scaled scores with the bias, -inf where a key is masked; and the scale."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q, k.mT).mul_(factor)
    if bias is not None:
        scores.add_(bias)
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril_()
        scores.masked_fill_(~visible, -math.inf)
    return scores, factor


def _probabilities(scores: Any, lse: Any) -> Any:
    """exp(scores - lse), in place of the scores; 0 in rows of -inf."""
    return scores.sub_(lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp_()


def _fits_blocks(q: Any, v: Any) -> bool:
    """Whether ATen's blocked kernels take these operands."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64) and q.shape[-1] == v.shape[-1]


def _fits_efficient(q: Any, k: Any, v: Any) -> bool:
    """Whether ATen's memory-efficient kernels for CUDA take these operands; cuDNN has kernels for halves.

    They split numbers into parts of TF32, so that all results that an infinite query or key takes part in are NaN."""
    most_heads = (1 << 16) - 1
    sizes = q.shape[-1] % 4 == v.shape[-1] % 4 == 0 and q.shape[:-2].numel() <= most_heads
    return (
        q.device.type == "cuda" and q.dtype == torch.float32 and sizes and bool(q.numel() and k.numel() and v.numel())
    )


def _is_regular(lse: Any) -> bool:
    """Whether all scores were finite where it matters: the blocked kernels give 0 for rows of -inf and of NaN alike."""
    return bool((torch.isfinite(lse) & (lse != 0)).all())


def _heads(x: Any) -> Any:
    """A view with two leading axes."""
    return x.reshape(-1, 1, *x.shape[-2:])


def _batches(x: Any) -> Any:
    """A view with two leading axes, which keeps the strides of batches and heads."""
    return x if x.ndim == 4 else _heads(x)


def _reads_strides(call: CallInfo) -> bool:
    """Whether ATen's blocked kernels read queries, keys, values and their gradients where they are."""
    q, _, v, *_, bias = call.args
    is_blocked = call.device.kind == "cpu" and q.dtype in ("float32", "float64") and q.shape[-1] == v.shape[-1]
    is_blocked = is_blocked and q.ndim == 4 and bias is None
    return is_blocked and all(layout is None or layout.strides[-1:] == (1,) for layout in call.layouts)


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None, bias: Any, *, out: Any) -> None:
    y, lse = out
    if bias is None and _fits_blocks(q, v):
        result, logarithms = _blocked(_batches(q), _batches(k), _batches(v), 0.0, causal, scale=scale)
        if _is_regular(logarithms):
            y.copy_(result.view(y.shape))
            lse.copy_(logarithms.reshape(lse.shape))
            return
    if bias is None and _fits_efficient(q, k, v):
        result, logarithms, *_ = _efficient(_heads(q), _heads(k), _heads(v), None, True, 0.0, causal, scale=scale)
        y.copy_(result.view(y.shape))
        lse.copy_(logarithms[..., : q.shape[-2]].reshape(lse.shape))
        return
    q, k, v = (t.to(lse.dtype) for t in (q, k, v))
    scores, _ = _scaled_scores(q, k, causal, scale, bias)
    torch.logsumexp(scores, -1, out=lse)
    lse.masked_fill_(lse == math.inf, math.nan)
    p = _probabilities(scores, lse)
    if y.dtype == p.dtype:
        torch.matmul(p, v, out=y)
    else:
        y.copy_(torch.matmul(p, v))


def attention_dx(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, causal: bool, scale: float | None, bias: Any, *, out: Any
) -> None:
    lse_rows = 32  # The number of rows of logarithms that `_efficient_dx` takes is a multiple of it.
    if bias is None and _fits_blocks(q, v) and _is_regular(lse):
        operands = (*map(_batches, (dy, q, k, v, y)), lse if q.ndim == 4 else lse.reshape(-1, 1, lse.shape[-1]))
        for target, gradient in zip(out, _blocked_dx(*operands, 0.0, causal, scale=scale), strict=True):
            target.copy_(gradient.view(target.shape))
        return
    if bias is None and _fits_efficient(q, k, v):
        rows = lse.reshape(-1, 1, lse.shape[-1])
        rows = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % lse_rows), value=math.inf)
        seed = torch.zeros((), dtype=torch.int64)  # of no dropout
        operands = (*map(_heads, (dy, q, k, v)), None, _heads(y), rows, seed, seed)
        gradients = _efficient_dx(*operands, 0.0, [True, True, True, False], causal, scale=scale)
        for target, gradient in zip(out, gradients, strict=False):
            target.copy_(gradient.view(target.shape))
        return
    q, k, v, y, dy = (t.to(lse.dtype) for t in (q, k, v, y, dy))
    scores, factor = _scaled_scores(q, k, causal, scale, bias)
    p = _probabilities(scores, lse)
    ds = torch.matmul(dy, v.mT).sub_((dy * y).sum(-1, keepdim=True)).mul_(p).mul_(factor)
    for target, a, b in zip(out, (ds, ds.mT, p.mT), (k, q, dy), strict=True):
        target.copy_(torch.matmul(a, b))


DIALECT.implement("attention_with_lse", attention, strided=_reads_strides)
DIALECT.implement("attention_with_lse_dx", attention_dx, strided=_reads_strides)
