"""Vector loops with a tail and a mask of positions: each element is computed once, also in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import sym
from meta.ir.type import tensor_type


@pytest.mark.parametrize(("size", "dtype"), [(33, "float64"), (65, "float32")])
def test_causal_attention_gradients_of_sizes_above_a_vector(size: int, dtype: str) -> None:
    """TVM's LoopPartition ran the last vector of some rows twice, over scores that their exponentials overwrite."""
    rng = np.random.default_rng(0)
    q, k, v, y, dy = [meta.array(rng.uniform(-1, 1, (2, size, 3)).astype(dtype)) for _ in range(5)]
    lse = meta.array(rng.uniform(1, 2, (2, size)).astype(dtype))

    def gradients(*args: meta.NDArray) -> tuple[meta.NDArray, ...]:
        return meta.attention_with_lse_dx(*args, causal=True)

    results = meta.vm.compile(gradients)(q, k, v, y, lse, dy)
    with meta.with_dialect("reference"):
        expected = gradients(q, k, v, y, lse, dy)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 11), (4, 5), (6, 6), (4, 9)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_with_a_tail_of_symbolically_many_images(shape: tuple[int, int], dtype: str) -> None:
    """Positions are numbers of 64 bits, beside which LoopPartition wrote a 0 of 32 bits for the position of the tail:
    for vectors of every width, some of these rows are whole vectors and a tail."""

    @meta.trace
    def mean(x: Any) -> Any:
        return x.mean()

    executor = meta.vm.compile(mean.record(tensor_type((sym("n"), *shape), dtype)).module)
    x = np.random.default_rng(0).standard_normal((3, *shape)).astype(dtype)
    (result,) = executor(meta.array(x))
    np.testing.assert_allclose(result.numpy(), x.mean(), rtol=1e-5)


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
