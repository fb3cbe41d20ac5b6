"""Attention by ATen's matrix products, with all scores in memory. Halves are computed in float32."""

from __future__ import annotations

import math
from typing import Any

import torch

from meta.op.dialect.torch import DIALECT


def _scaled_scores(q: Any, k: Any, causal: bool, scale: float | None) -> tuple[Any, float]:
    """The scaled scores, -inf where a key is masked; and the scale."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q, k.mT).mul_(factor)
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril_()
        scores.masked_fill_(~visible, -math.inf)
    return scores, factor


def _probabilities(scores: Any, lse: Any) -> Any:
    """exp(scores - lse), in place of the scores; 0 in rows of -inf."""
    return scores.sub_(lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp_()


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None, *, out: Any) -> None:
    y, lse = out
    q, k, v = (t.to(lse.dtype) for t in (q, k, v))
    scores, _ = _scaled_scores(q, k, causal, scale)
    torch.logsumexp(scores, -1, out=lse)
    lse.masked_fill_(lse == math.inf, math.nan)
    p = _probabilities(scores, lse)
    if y.dtype == p.dtype:
        torch.matmul(p, v, out=y)
    else:
        y.copy_(torch.matmul(p, v))


def attention_dx(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, causal: bool, scale: float | None, *, out: Any
) -> None:
    q, k, v, y, dy = (t.to(lse.dtype) for t in (q, k, v, y, dy))
    scores, factor = _scaled_scores(q, k, causal, scale)
    p = _probabilities(scores, lse)
    ds = torch.matmul(dy, v.mT).sub_((dy * y).sum(-1, keepdim=True)).mul_(p).mul_(factor)
    for target, a, b in zip(out, (ds, ds.mT, p.mT), (k, q, dy), strict=True):
        target.copy_(torch.matmul(a, b))


DIALECT.implement("scaled_dot_product_attention", attention)
DIALECT.implement("scaled_dot_product_attention_dx", attention_dx)
