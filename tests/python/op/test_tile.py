"""Tiles of arrays of unknown sizes: eager kernels and dynamic programs."""

from __future__ import annotations

import numpy as np
import pytest

import meta


@pytest.mark.parametrize("reps", [(2, 3), (2, 1, 3), (4,), (0, 2)])
@pytest.mark.parametrize("shape", [(3, 37), (5, 1), (1, 4), (0, 3)])
def test_tiles(shape: tuple[int, ...], reps: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    np.testing.assert_array_equal(meta.tile(meta.array(x), reps).numpy(), np.tile(x, reps))


def test_in_a_dynamic_program() -> None:
    def step(x: meta.NDArray) -> meta.NDArray:
        return meta.relu(meta.tile(x * 2, (2, 3))) + 1

    compiled = meta.vm.compile(meta.trace(step), dynamic={"x": {0: "rows", 1: "columns"}})
    for shape in ((3, 5), (4, 7), (2, 2)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        np.testing.assert_array_equal(compiled(meta.array(x)).numpy(), np.maximum(np.tile(x * 2, (2, 3)), 0) + 1)
