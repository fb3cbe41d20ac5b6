"""Attention on the CPU in register tiles: results, gradients, special values, and the calls that it runs for."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm.te import attention as tiled
from meta.ir.type import tensor_type
from meta.op.work import attention_fits_tiles

torch = pytest.importorskip("torch")

SHAPES = {
    "several heads": ((2, 3, 8, 32), (2, 3, 32, 64), False, None),
    "causal, a scale, more queries than keys": ((1, 36, 64), (1, 32, 32), True, 0.3),
    "blocks of queries": ((1, 128, 32), (1, 512, 32), True, None),
}
"""Shapes of queries and values, whether later keys are masked, and the scale."""


def draw(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def both(q: Any, k: Any, v: Any, dy: Any, causal: bool, scale: float | None) -> list[Any]:
    """y, lse, dq, dk and dv by TVM."""
    q, k, v, dy = map(meta.array, (q, k, v, dy))
    with meta.with_dialect("tvm"):
        y, lse = meta.attention_with_lse(q, k, v, causal=causal, scale=scale)
        gradients = meta.attention_with_lse_dx(q, k, v, y, lse, dy, causal=causal, scale=scale)
    return [x.numpy() for x in (y, lse, *gradients)]


def by_torch(q: Any, k: Any, v: Any, dy: Any, causal: bool, scale: float | None) -> list[Any]:
    """The same in float64."""
    q, k, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (q, k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    y = torch.softmax(scores, -1) @ v
    y.backward(torch.tensor(dy, dtype=torch.float64))
    return [x.detach().numpy() for x in (y, torch.logsumexp(scores, -1), q.grad, k.grad, v.grad)]


@pytest.mark.parametrize("name", SHAPES)
def test_results_and_gradients_agree_with_torch(name: str) -> None:
    q, v, causal, scale = SHAPES[name]
    k = (*v[:-1], q[-1])
    assert attention_fits_tiles("float32", q, k, v)
    head = tiled._head(*(tensor_type(shape, "float32") for shape in (q, k, v)), causal, scale)
    assert head.blocks == (2 if name == "blocks of queries" else 1)
    operands = draw(q, k, v, (*q[:-1], v[-1]))
    for ours, expected in zip(both(*operands, causal, scale), by_torch(*operands, causal, scale), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-5)


def test_queries_of_infinite_scores() -> None:
    """A query whose scores are all -inf gets 0, one with a score of inf or NaN gets NaN, in lse too."""
    q, k, v, dy = draw((1, 8, 32), (1, 32, 32), (1, 32, 32), (1, 8, 32))
    k = np.abs(k)
    q[0, 2], q[0, 3], q[0, 5] = -math.inf, math.inf, math.nan
    y, lse, dq, _, dv = both(q, k, v, dy, False, None)
    assert (y[0, 2] == 0).all()
    assert lse[0, 2] == -math.inf
    assert np.isnan(y[0, [3, 5]]).all()
    assert np.isnan(lse[0, [3, 5]]).all()
    others = [0, 1, 4, 6, 7]
    expected = by_torch(q[:, others], k, v, dy[:, others], False, None)
    for ours, reference in zip((y, lse, dq), expected, strict=False):
        np.testing.assert_allclose(ours[:, others], reference, rtol=1e-4, atol=2e-5)
    assert np.isnan(dv).all()


def test_a_key_that_is_not_finite_reaches_every_query() -> None:
    q, k, v, dy = draw((1, 8, 32), (1, 32, 32), (1, 32, 32), (1, 8, 32))
    k[0, 17, 3] = math.nan
    y, lse, *_ = both(q, k, v, dy, False, None)
    assert np.isnan(y).all()
    assert np.isnan(lse).all()


@pytest.mark.parametrize(
    ("shape", "cores", "chosen"),
    [
        ((4, 64, 32), 4, "tvm"),
        ((2, 2, 64, 32), 4, "tvm"),
        ((4, 64, 32), 5, "torch"),  # a core would have no head
        ((4, 63, 32), 4, "torch"),
        ((4, 64, 33), 4, "torch"),
        ((4, 4096, 32), 4, "torch"),  # keys that do not fit in the cache
    ],
)
def test_it_runs_where_every_core_has_a_head_whose_keys_are_near(
    shape: tuple[int, ...], cores: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    operand = meta.zeros(shape)
    explained = meta.explain("attention_with_lse", operand, operand, operand)
    assert str(explained).startswith(f"attention_with_lse: {chosen}")
