"""Vector loops with a tail and a mask of positions: each element is computed once, also in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta


@pytest.mark.parametrize(("size", "dtype"), [(33, "float64"), (65, "float32")])
def test_causal_attention_gradients_of_sizes_above_a_vector(size: int, dtype: str) -> None:
    """TVM's LoopPartition ran the last vector of some rows twice, over scores that their exponentials overwrite."""
    rng = np.random.default_rng(0)
    q, k, v, y, dy = [meta.array(rng.uniform(-1, 1, (2, size, 3)).astype(dtype)) for _ in range(5)]
    lse = meta.array(rng.uniform(1, 2, (2, size)).astype(dtype))

    def gradients(*args: meta.NDArray) -> tuple[meta.NDArray, ...]:
        return meta.scaled_dot_product_attention_dx(*args, causal=True)

    results = meta.vm.compile(gradients)(q, k, v, y, lse, dy)
    with meta.with_dialect("reference"):
        expected = gradients(q, k, v, y, lse, dy)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_positions_compared_with_elements_keep_their_width() -> None:
    """Classes of int64 are compared with positions that TVM narrows to 32 bits."""
    scores = np.random.default_rng(0).standard_normal((256, 10)).astype("float32")
    labels = np.arange(256) % 10

    @meta.trace
    def gradient(x: Any, labels: Any) -> Any:
        meta.cross_entropy(x, labels).backward()
        return x.grad

    x = meta.array(scores, requires_grad=True)
    ours = meta.vm.compile(gradient)(x, meta.array(labels))
    powers = np.exp(scores.astype("float64"))
    expected = (powers / powers.sum(1, keepdims=True) - np.eye(10)[labels]) / 256
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-5, atol=1e-8)
