"""Attention and its gradient."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.op.decomposition import decomposition


def _scores(q: Any, k: Any, causal: bool, factor: float, bias: Any) -> Any:
    """The scaled scores with the bias, -inf where a key is behind the query."""
    scores = meta.matmul(q, k, False, True) * factor
    if bias is not None:
        scores = scores + bias
    if not causal:
        return scores
    rows, columns = (meta.arange(0, x.shape[-2], 1, "int64", x.device) for x in (q, k))
    return meta.where(meta.less_equal(columns, meta.expand_dims(rows, (1,))), scores, -math.inf)


def _factor(q: Any, scale: float | None) -> float | None:
    """None for a symbolic number of features without a scale."""
    features = q.shape[-1]
    return scale if scale is not None else 1 / math.sqrt(features) if isinstance(features, int) else None


def _finite(rows: Any) -> Any:
    """0 for rows whose scores are all -inf: their exponentials and results are 0, as in torch."""
    return meta.where(meta.equal(rows, -math.inf), 0, rows)


@decomposition("attention_with_lse")
def attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None, bias: Any) -> tuple[Any, Any] | None:
    factor = _factor(q, scale)
    if factor is None:
        return None
    scores = _scores(q, k, causal, factor, bias)
    highest = _finite(meta.max(scores, (-1,), True))
    powers = meta.exp(scores - highest)
    total = meta.sum(powers, (-1,), True)
    weights = powers / meta.where(meta.equal(total, 0), 1, total)
    return meta.matmul(weights, v), meta.squeeze(meta.log(total) + highest, (-1,))


@decomposition("attention_with_lse_dx")
def attention_dx(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, causal: bool, scale: float | None, bias: Any
) -> tuple[Any, ...] | None:
    factor = _factor(q, scale)
    if factor is None:
        return None
    p = meta.exp(_scores(q, k, causal, factor, bias) - _finite(meta.expand_dims(lse, (-1,))))
    dp = meta.matmul(dy, v, False, True)
    ds = p * (dp - meta.sum(dy * y, (-1,), True)) * factor
    return meta.matmul(ds, k), meta.matmul(ds, q, True, False), meta.matmul(p, dy, True, False)
