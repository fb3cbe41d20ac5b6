"""Sorting of special values and equal elements in every dialect; gradients of products with zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.testing.arrays import check, to_torch

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
    """Equal elements keep their order also where topk selects instead of sorting."""
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


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint32", "int64", "uint64", "bool"])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 32, 33, 47, 64, 200, 4099])
def test_selection_equals_a_stable_sort(size: int, dtype: str) -> None:
    """Of few values and of many, up to the largest and smallest; of short rows, which are counted, and of long ones."""
    rng = np.random.default_rng(size)
    is_float = dtype.startswith("float")
    low, high = (-(1 << 10), 1 << 10) if is_float else (0, 2) if dtype == "bool" else _bounds(dtype)
    many = rng.integers(low, high, (3, size), endpoint=not is_float and dtype != "bool", dtype=_kind(dtype))
    few = rng.choice(many.reshape(-1)[:3], (3, size))
    for x in (many.astype(dtype), few.astype(dtype)):
        if is_float:
            x[0, ::3], x[1, ::2] = np.nan, -0.0
        ranks = np.stack([rng.permutation(size)[:5] for _ in range(3)])
        order = np.argsort(x, 1, kind="stable")
        with meta.with_dialect("tvm"):
            positions = meta.rank_positions(meta.array(x), meta.array(ranks), 1)
            for largest in (False, True):
                count = max(size // 3, 1)
                values, indices = meta.topk(meta.array(x), count, 1, largest)
                expected = torch.sort(to_torch(x), dim=1, descending=largest, stable=True).indices[:, :count].numpy()
                assert np.array_equal(indices.numpy(), expected)
                assert np.array_equal(values.numpy(), np.take_along_axis(x, expected, 1), equal_nan=is_float)
        assert np.array_equal(positions.numpy(), np.take_along_axis(order, ranks, 1))


def _bounds(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _kind(dtype: str) -> Any:
    return np.dtype("int64" if dtype.startswith("float") or dtype == "bool" else dtype)


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
