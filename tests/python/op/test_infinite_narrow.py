"""Infinities, NaN and zeros in float32 and both half precisions: eager calls and programs agree with torch, results and
gradients, in resizing, attention, powers and products. test_infinite_values.py has more of them, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import meta

INF, NAN = math.inf, math.nan
TOLERANCES = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}

Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


def _image(shape: tuple[int, ...], place: int, value: float) -> Any:
    x = np.linspace(-1, 2, math.prod(shape))
    x[place] = value
    return x.reshape(shape)


def _resized(rank: int, method: Any, coordinates: Any, mode: str, place: int, value: float) -> Case:
    size = (3, 7)[-rank:]
    operator, corners = getattr(meta, f"resize{rank}d"), None if method == "nearest" else False
    return (
        lambda x: operator(x, size, method, coordinates),
        lambda x: F.interpolate(x, size, mode=mode, align_corners=corners),
        (_image((1, 1, *(5,) * rank), place, value),),
    )


def _attended(causal: bool, query: float, key: float) -> Case:
    """torch's sum of weights and values is made of its softmax, in which a row of -inf is 0."""
    q, k, v = np.linspace(0.2, 1, 6), np.linspace(0.3, 1, 6), np.arange(6.0)
    q[2:4] *= query
    k[2:4] *= key
    mask = torch.ones(3, 3).tril() if causal else torch.ones(3, 3)

    def expected(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.mT / math.sqrt(2)).float().masked_fill(mask == 0, -INF)
        empty = scores.isneginf().all(-1, keepdim=True)
        return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0).to(v.dtype) @ v

    arrays = tuple(x.reshape(1, 1, 3, 2) for x in (q, k, v))
    return lambda q, k, v: meta.scaled_dot_product_attention(q, k, v, is_causal=causal), expected, arrays


def _product(*row: float) -> Case:
    return lambda x: meta.prod(x, 1), lambda x: torch.prod(x, 1), (np.array([row, (1.0,) * len(row)]),)


BASES = (NAN, 0.0, 0.0, 0.0, INF, INF, 1.0, -1.0, -1.0, 0.0, 0.0, -0.0, 2.0, 1e-4, -2.0, NAN, -INF, 0.0)
EXPONENTS = (0.0, 0.0, -1.0, 0.5, 0.0, 2.0, NAN, INF, 0.5, 2.0, 1.0, -1.0, 0.0, 0.0, 3.0, 1.0, 0.0, NAN)
CASES: dict[str, Case] = {
    "linear": _resized(1, "linear", "half_pixel", "linear", 2, -INF),
    "linear, corner": _resized(1, "linear", "half_pixel", "linear", 4, INF),
    "nearest by centres": _resized(1, "nearest", "tf_half_pixel_for_nn", "nearest-exact", 2, INF),
    "bilinear": _resized(2, "linear", "half_pixel", "bilinear", 7, INF),
    "bicubic": _resized(2, "cubic", "half_pixel", "bicubic", 7, -INF),
    "nearest of two axes": _resized(2, "nearest", "tf_half_pixel_for_nn", "nearest-exact", 7, NAN),
    "query of inf": _attended(False, INF, 1.0),
    "key of inf": _attended(True, 1.0, INF),
    "key of -inf": _attended(False, 1.0, -INF),
    "key of NaN": _attended(True, 1.0, NAN),
    "power": (meta.power, torch.pow, (np.array(BASES), np.array(EXPONENTS))),
    **{f"power {n}": (lambda x, n=n: meta.power(x, n), lambda x, n=n: torch.pow(x, n), (np.array(BASES),))
       for n in (0.0, 1.0, 2.0, -1.0)},
    "product": _product(0.0, INF, 3.0),
    "product of zeros": _product(0.0, 0.0, 2.0),
    "product, NaN": _product(2.0, NAN, 3.0),
}  # fmt: skip


def _ours(arguments: list[list[Any]]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for (function, _, _), xs in zip(CASES.values(), arguments, strict=True):
        y = function(*xs)
        rows.append([y, *meta.autograd.grad([y], xs, [meta.ones_like(y)])])
    return rows


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_results_and_gradients(dtype: str) -> None:
    tolerance = TOLERANCES[dtype]
    arguments = [[meta.array(x).cast(dtype) for x in xs] for _, _, xs in CASES.values()]
    for xs in arguments:
        for x in xs:
            x.requires_grad = True
    eager, compiled = _ours(arguments), meta.vm.compile(meta.trace(_ours))(arguments)
    for (name, (_, function, xs)), ours, theirs in zip(CASES.items(), eager, compiled, strict=True):
        leaves = [torch.tensor(x).to(getattr(torch, dtype)).requires_grad_() for x in xs]
        y = function(*leaves)
        expected = [y, *torch.autograd.grad(y, leaves, torch.ones_like(y))]
        for i, (e, a, c) in enumerate(zip(expected, ours, theirs, strict=True)):
            wide = e.detach().double().numpy()
            for kind, x in (("eager", a), ("compiled", c)):
                got = meta.cast(x.detach(), "float64").numpy()
                np.testing.assert_allclose(got, wide, tolerance, tolerance, err_msg=f"{name}, {i}, {kind}")


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_query_whose_scores_are_all_negative_infinity_passes_no_gradient_on(dtype: str) -> None:
    function, expected, xs = _attended(False, -INF, 1.0)
    arguments = [meta.array(x).cast(dtype) for x in xs]
    for x in arguments:
        x.requires_grad = True
    y = function(*arguments)
    gradients = meta.autograd.grad([y], arguments, [meta.ones_like(y)])
    want = expected(*(torch.tensor(x).to(getattr(torch, dtype)) for x in xs)).double().numpy()
    np.testing.assert_allclose(meta.cast(y.detach(), "float64").numpy(), want, *(TOLERANCES[dtype],) * 2)
    of_query, _, of_value = (meta.cast(g.detach(), "float64").numpy() for g in gradients)
    assert np.isfinite(of_query).all()
    assert np.isfinite(of_value).all()
    assert not of_query[0, 0, 1].any()
