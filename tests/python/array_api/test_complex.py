"""Functions of the standard on complex arrays, judged by array_api_strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import meta

xp: Any = meta.array_api
GRID = np.array([[0, 1 - 2j, 2 - 1j, 0], [-1j, 1 - 2j, -2, 2 + 1j]], "complex64")
HALVES = np.array([0.5 - 1.5j, 2.5 + 0.25j, -0.75j], "complex64")


@pytest.mark.parametrize(
    ("call", "host"),
    [
        (lambda xp, x: xp.round(x), HALVES),
        (lambda xp, x: xp.sign(x), GRID),
        (lambda xp, x: xp.any(x, axis=0), GRID),
        (lambda xp, x: xp.all(x, axis=0, keepdims=True), GRID),
        (lambda xp, x: xp.nonzero(x), GRID),
        (lambda xp, x: xp.cumulative_sum(x, axis=-2, include_initial=True), GRID),
        (lambda xp, x: xp.cumulative_prod(x, axis=1), HALVES[:, None] + HALVES[::-1]),
        (lambda xp, x: xp.prod(x, axis=(-1, 0), keepdims=True), np.stack([GRID + 1, GRID - 1], 1)),
        (lambda xp, x: xp.prod(x[:0, ...], axis=0), GRID),
        (lambda xp, x: xp.vecdot(x, x + 1), GRID),
        (lambda xp, x: xp.unique_all(x), GRID),
    ],
    ids=[
        "round",
        "sign",
        "any",
        "all",
        "nonzero",
        "cumulative_sum",
        "cumulative_prod",
        "prod",
        "prod_of_none",
        "vecdot",
        "unique_all",
    ],
)
def test_functions(call: Callable[[Any, Any], Any], host: np.ndarray) -> None:
    out, expected = call(xp, meta.array(host)), call(strict, strict.asarray(host))
    parts = zip(out, expected, strict=True) if isinstance(out, tuple) else [(out, expected)]
    for part, judge in parts:
        judged = np.asarray(judge)
        assert part.dtype == str(judged.dtype)
        np.testing.assert_allclose(part.numpy(), judged, rtol=1e-6)


def test_every_nan_is_distinct() -> None:
    x = meta.array(np.array([complex(np.nan, 1), complex(1, np.nan), complex(np.nan, 1), 1], "complex64"))
    assert xp.unique_counts(x).counts.tolist() == [1, 1, 1, 1]
