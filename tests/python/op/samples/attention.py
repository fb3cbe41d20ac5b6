"""Samples of attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def scores(q: Any, k: Any, causal: bool, scale: float | None, bias: Any) -> Any:
    out = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    out = out if bias is None else out + bias
    return out.masked_fill(~torch.ones(out.shape[-2:], dtype=torch.bool).tril(), -torch.inf) if causal else out


def wide(x: Any) -> Any:
    """Halves in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, bias: Any = None) -> Any:
    weighed = scores(wide(q), wide(k), causal, scale, None if bias is None else wide(bias))
    return (torch.softmax(weighed, -1) @ wide(v)).to(q.dtype), torch.logsumexp(weighed, -1)


def attention_dx(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, causal: bool = False, scale: float | None = None,
    bias: Any = None,
) -> Any:  # fmt: skip
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype, (q, k, v, y, dy) = q.dtype, map(wide, (q, k, v, y, dy))
    p = torch.exp(scores(q, k, causal, scale, bias) - lse[..., None])
    ds = p * (dy @ v.mT - (dy * y).sum(-1, keepdim=True)) * factor
    return tuple(t.to(dtype) for t in (ds @ k, ds.mT @ q, p.mT @ dy))


def rows(q: tuple[int, ...], v: tuple[int, ...], bias: Any = None, **attributes: Any) -> list[Sample]:
    """The operator and its backward operator; q, v and bias are shapes."""
    if bias is not None:
        attributes["bias"] = T(*bias)
    keys, result = T(*v[:-1], q[-1]), T(*q[:-1], v[-1])
    name = "attention_with_lse"
    # Logarithms about those of a few keys keep the exponentials near 1. They are float32 where the rest is in halves.
    lse = T(*q[:-1], low=0, high=2)
    return [
        Sample(name, T(*q), keys, T(*v), ref=attention, **attributes),
        Sample(f"{name}_dx", T(*q), keys, T(*v), result, lse, result, ref=attention_dx, dtypes=("float32", "float64"),
               **attributes),
    ]  # fmt: skip


SAMPLES = [
    *rows((2, 2, 5, 8), (2, 2, 5, 8)),
    *rows((1, 2, 5, 8), (1, 2, 7, 16), causal=True, scale=0.5),
    *rows((4, 3), (6, 2)),
    *rows((2, 1, 4), (2, 3, 1), causal=True),
    *rows((2, 2, 5, 8), (2, 2, 7, 8), (2, 1, 5, 7)),
    *rows((2, 3, 4), (2, 3, 4), (3,), causal=True, scale=0.5),
    *rows((2, 33, 24), (2, 33, 24), causal=True, grad=False),  # enough for products by a library
]
ERRORS = [
    ErrorCase(
        "attention_with_lse",
        T(2, 5, 8),
        T(2, 5, 7),
        T(2, 5, 8),
        error=TypeInferenceError,
        match="as many features of q as of k",
    ),
    ErrorCase(
        "attention_with_lse",
        T(2, 5, 8),
        T(2, 5, 8),
        T(2, 6, 8),
        error=TypeInferenceError,
        match="as many keys as values",
    ),
    ErrorCase("attention_with_lse", T(5), T(5), T(5), error=TypeInferenceError, match="equal ranks of at least 2"),
    ErrorCase(
        "attention_with_lse",
        T(2, 5, 8),
        T(1, 5, 8),
        T(2, 5, 8),
        error=TypeInferenceError,
        match="equal leading axes",
    ),
    ErrorCase(
        "attention_with_lse_dx",
        T(2, 5, 8),
        T(2, 5, 8),
        T(2, 5, 8),
        T(2, 5, 8),
        T(2, 5, dtype="float64"),
        T(2, 5, 8),
        error=TypeInferenceError,
        match="'lse' is float64, 'q' is float32",
    ),
]
