"""Where the gradient of max pooling goes: ties, infinities and what is no number, for windows of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta

REGULAR = [
    # shape, kernel, stride, padding, dilation, ceil_mode
    ((2, 3, 8, 14), 2, 2, 0, 1, False),
    ((1, 2, 7, 22), (2, 4), (2, 4), 0, 1, True),
    ((2, 2, 9, 35), 3, 2, 1, 1, False),
    ((1, 2, 12, 19), 3, 1, 1, 1, False),
    ((1, 2, 13, 21), 3, 2, (2, 1, 0, 2), 2, True),
    ((1, 2, 9, 40), 2, (3, 5), 0, 1, False),
    ((1, 1, 20, 24), 9, 4, 4, 1, False),
    ((1, 1, 5, 24), (1, 2), (2, 20), 0, 1, False),
    ((1, 1, 3, 2), (1, 2), 1, (0, 2), (1, 3), False),
    ((2, 2, 50), 3, 2, 1, 1, False),
    ((1, 2, 5, 6, 20), 3, 2, 1, 1, True),
    ((0, 2, 8, 8), 3, 2, 1, 1, False),
]
ADAPTIVE = [((2, 2, 7, 20), (3, 6)), ((1, 2, 8, 12), (1, 1)), ((1, 1, 4, 5), (7, 2)), ((1, 2, 5, 6, 9), (2, 6, 4))]
CONTENTS = {
    "equal": lambda x: np.round(x),
    "not numbers": lambda x: np.where(x > 0.8, np.nan, np.round(x)),
    "infinite": lambda x: np.where(x < 0.7, -np.inf, np.where(x > 1.5, np.inf, x)),
    "lowest": lambda x: np.full_like(x, -np.inf),
}


def alike(op: str, x: Any, dy: Any, *args: Any) -> None:
    found: list[Any] = []
    for dialect in ("tvm", "reference"):
        with meta.with_dialect(dialect):
            found.append(getattr(meta, op)(meta.array(x), meta.array(dy), *args).numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("case", REGULAR, ids=repr)
def test_gradient_of_max_pooling(case: Any, content: str) -> None:
    shape, *args = case
    random = np.random.default_rng(0)
    x = CONTENTS[content](random.standard_normal(shape)).astype("float32")
    pooled = getattr(meta, f"max_pool{len(shape) - 2}d")(meta.array(x), *args)
    dy = random.standard_normal(pooled.shape).astype("float32")
    alike(f"max_pool{len(shape) - 2}d_dx", x, dy, *args)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("case", ADAPTIVE, ids=repr)
def test_gradient_of_adaptive_max_pooling(case: Any, content: str) -> None:
    shape, size = case
    random = np.random.default_rng(0)
    x = CONTENTS[content](random.standard_normal(shape)).astype("float32")
    dy = random.standard_normal((*shape[:2], *size)).astype("float32")
    alike(f"adaptive_max_pool{len(shape) - 2}d_dx", x, dy)


def test_planes_in_several_threads() -> None:
    x = np.random.default_rng(0).standard_normal((4, 32, 64, 66)).astype("float32")
    alike("max_pool2d_dx", x, x[:, :, ::2, ::2].copy(), 3, 2, 1)
