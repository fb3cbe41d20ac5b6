"""Sorting of special values and equal elements in every dialect; gradients of products with zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.testing.arrays import check

VALUES = [2.0, math.nan, -0.0, 0.0, math.inf, -1.5, math.nan, -math.inf, 0.0, -0.0, 2.0]
DIALECTS = ["tvm", "torch", "reference"]


def rows(count: int, dtype: str) -> Any:
    """Permutations of VALUES, with enough elements for every dialect to accept them."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(np.resize(VALUES, count)) for _ in range(5000 // count + 1)]).astype(dtype)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_special_values(dialect: str, descending: bool) -> None:
    x = rows(len(VALUES), "float32")
    expected = torch.sort(torch.from_numpy(x), dim=1, descending=descending, stable=True)
    with meta.with_dialect([dialect, "tvm"]):
        order = meta.argsort(meta.array(x), 1, descending)
        values, indices = meta.topk(meta.array(x), 7, 1, descending)
    assert np.array_equal(order.numpy(), expected.indices.numpy())
    assert np.array_equal(indices.numpy(), expected.indices.numpy()[:, :7])
    assert np.array_equal(values.numpy(), expected.values.numpy()[:, :7], equal_nan=True)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("kind", ["distinct", "ties", "special"])
def test_topk_of_few_elements(kind: str, largest: bool) -> None:
    """Equal elements keep their order also if topk selects instead of sorting."""
    rng = np.random.default_rng(0)
    x = {
        "distinct": rng.permutation(8000).astype(np.float32).reshape(4, 2000),
        "ties": rng.integers(0, 50, (4, 2000)).astype(np.float32),
        "special": rows(2000, "float32"),
    }[kind]
    results = meta.topk(meta.array(x), 3, 1, largest)
    expected = torch.sort(torch.from_numpy(x), dim=1, descending=largest, stable=True)
    for result, reference in zip(results, expected, strict=True):
        assert np.array_equal(result.numpy(), reference.numpy()[:, :3], equal_nan=result.dtype == "float32")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 31, 32, 33, 1000])
def test_sizes(size: int) -> None:
    x = np.random.default_rng(size).integers(0, 9, (2, size)).astype(np.int32)
    with meta.with_dialect("tvm"):
        assert meta.argsort(meta.array(x)).tolist() == np.argsort(x, 1, kind="stable").tolist()


@pytest.mark.parametrize("row", [[2.0, 0.0, 3.0, -1.0], [2.0, 0.0, 3.0, 0.0], [0.0, 0.0, 1.0, 2.0]])
def test_gradient_of_cumulative_products_with_zeros(row: list[float]) -> None:
    x, t = meta.array(row), torch.tensor(row, requires_grad=True)
    x.requires_grad = True
    dy = np.array([1.0, 2.0, -1.0, 0.5], np.float32)
    meta.cumprod(x, 0).backward(meta.array(dy))
    torch.cumprod(t, 0).backward(torch.from_numpy(dy))
    check(x.grad, t.grad)


@pytest.mark.parametrize("src", [[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [2.0, 4.0, 0.0]])
def test_gradient_of_scattered_products_with_zeros(src: list[float]) -> None:
    indices, start = np.array([0, 0, 1]), [2.0, -1.0]
    x, s = meta.array(start), meta.array(src)
    t, u = torch.tensor(start, requires_grad=True), torch.tensor(src, requires_grad=True)
    x.requires_grad = s.requires_grad = True
    meta.scatter_elements(x, 0, meta.array(indices), s, "mul").sum().backward()
    torch.scatter_reduce(t, 0, torch.from_numpy(indices), u, "prod").sum().backward()
    check(x.grad, t.grad)
    check(s.grad, u.grad)


def test_positions_in_rows_that_are_not_ascending_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 2, 7, 8, 33):
        rows, values = rng.integers(-5, 5, (3, size)).astype("float32"), rng.integers(-7, 7, (3, 9)).astype("float32")
        values[0, :2] = np.nan
        for right in (False, True):
            results: list[Any] = []
            for dialect in ("tvm", "reference"):
                with meta.with_dialect(dialect):
                    results.append(meta.binary_search(meta.array(rows), meta.array(values), right).tolist())
            assert results[0] == results[1]
