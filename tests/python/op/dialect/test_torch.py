"""Library kernels run for large problems, and for small ones only inside `with_dialect`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta

pytest.importorskip("torch")


def zeros(*shape: int) -> Any:
    return meta.array(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("op", "small", "large"),
    [
        ("matmul", (zeros(16, 16), zeros(16, 16)), (zeros(64, 64), zeros(64, 64))),
        ("scaled_dot_product_attention", (zeros(2, 5, 8),) * 3, (zeros(8, 64, 64),) * 3),
        ("sort", (zeros(3, 5),), (zeros(64, 128),)),
        ("concatenate", ([zeros(3, 5), zeros(3, 5)],), ([zeros(64, 128), zeros(64, 128)],)),
    ],
)
def test_torch_is_called_for_large_problems(op: str, small: tuple[Any, ...], large: tuple[Any, ...]) -> None:
    assert str(meta.explain(op, *large)).startswith(f"{op}: torch")
    explained = str(meta.explain(op, *small))
    assert explained.startswith(f"{op}: tvm")
    assert "too few: below" in explained
    with meta.with_dialect(["torch", "tvm"]):
        assert str(meta.explain(op, *small)).startswith(f"{op}: torch")
