"""NumPy arrays over the memory of arrays are read-only, as gradients cannot see writes of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import meta


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_views_are_read_only_and_copies_writable(dtype: str) -> None:
    x = meta.ones((2, 3), dtype=dtype)
    for view in (x.numpy(), np.asarray(x), np.array(x, copy=False)):
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 0
    for copy in (x.numpy(copy=True), np.array(x), np.asarray(x, "float64")):
        copy[0, 0] = 0
    assert (x.numpy() == 1).all()


def test_a_view_follows_the_array() -> None:
    x = meta.zeros((2,))
    view = x.numpy()
    x += 1.0
    assert view.tolist() == [1.0, 1.0]


def test_values_saved_for_a_gradient_cannot_be_written() -> None:
    x, w = meta.array([1.0, 2.0]), meta.array([3.0, 4.0], requires_grad=True)
    loss = (w * x).sum()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 100.0
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0]  # type: ignore[union-attr]
