"""Max pooling and its indices: ties, infinities and NaN, for windows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import meta
from meta.ir.expr import CallInfo
from meta.modes import modes, scoped

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
    "NaN": lambda x: np.where(x > 0.8, np.nan, np.round(x)),
    "infinite": lambda x: np.where(x < 0.7, -np.inf, np.where(x > 1.5, np.inf, x)),
    "lowest": lambda x: np.full_like(x, -np.inf),
}


def agree(op: str, x: Any, *args: Any) -> Any:
    """The operator, with and without indices, and its gradient on the tvm dialect as on the reference dialect; the
    indices."""
    results: list[Any] = []
    dy = np.random.default_rng(1).standard_normal(getattr(meta, op)(meta.array(x), *args).shape).astype("float32")
    for dialect in ("tvm", "reference"):
        with meta.with_dialect(dialect):
            y, indices = getattr(meta, f"{op}_with_indices")(meta.array(x), *args)
            rest = () if op.startswith("adaptive") else args
            dx = getattr(meta, f"{op}_dx")(meta.array(dy), indices, x.shape, *rest)
            largest = getattr(meta, op)(meta.array(x), *args)
        results.append((y.numpy(), indices.numpy(), dx.numpy(), largest.numpy()))
    for ours, reference in zip(*results, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-6)
    return results[0][1]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("case", REGULAR, ids=repr)
def test_max_pooling(case: Any, content: str) -> None:
    shape, *args = case
    x = CONTENTS[content](np.random.default_rng(0).standard_normal(shape)).astype("float32")
    agree(f"max_pool{len(shape) - 2}d", x, *args)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("case", ADAPTIVE, ids=repr)
def test_adaptive_max_pooling(case: Any, content: str) -> None:
    shape, size = case
    x = CONTENTS[content](np.random.default_rng(0).standard_normal(shape)).astype("float32")
    agree(f"adaptive_max_pool{len(shape) - 2}d", x, size)


def test_planes_in_several_threads() -> None:
    x = np.random.default_rng(0).standard_normal((4, 32, 64, 66)).astype("float32")
    agree("max_pool2d", x, 3, 2, 1)


def test_integers() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31 - 1, (2, 3, 9, 20)).astype("int32")
    y, indices = meta.max_pool2d_with_indices(meta.array(x), 3, 2, 1)
    selected = np.take_along_axis(x.reshape(6, -1), indices.numpy().reshape(6, -1), 1)
    np.testing.assert_array_equal(y.numpy().reshape(6, -1), selected)


def test_a_window_without_elements_has_index_minus_one() -> None:
    x = np.ones((1, 1, 3, 1), "float32")
    indices = agree("max_pool2d", x, (1, 2), 1, (0, 1), (1, 2))
    np.testing.assert_array_equal(indices, np.full((1, 1, 3, 1), -1))
    tracked = meta.array(x, requires_grad=True)
    meta.max_pool2d(tracked, (1, 2), 1, (0, 1), (1, 2)).backward(meta.ones((1, 1, 3, 1)))
    assert tracked.grad is not None
    np.testing.assert_array_equal(tracked.grad.numpy(), np.zeros((1, 1, 3, 1)))


@contextmanager
def pooling_calls() -> Iterator[list[str]]:
    """The names of the pooling operators that are dispatched."""
    names: list[str] = []

    def observe(call: CallInfo, _: Any) -> None:
        if "pool" in call.op.name:
            names.append(call.op.name)

    with scoped(observers=(*modes.observers, observe)):
        yield names


def test_an_array_in_a_graph_is_pooled_with_indices() -> None:
    x = meta.array(np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype("float32"), requires_grad=True)
    with pooling_calls() as names:
        meta.max_pool2d(x, 2).sum().backward()
    assert names == ["max_pool2d_with_indices", "max_pool2d_dx"]
    with pooling_calls() as names, meta.no_grad():
        meta.max_pool2d(x, 2)
    assert names == ["max_pool2d"]


def test_a_program_with_a_gradient_pools_once() -> None:
    @meta.trace
    def step(x: Any) -> Any:
        x.requires_grad = True
        y = meta.max_pool2d(meta.tanh(x), 2).sum()
        y.backward()
        return y, x.grad

    x = np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype("float32")
    with pooling_calls() as names:
        y, dx = meta.vm.compile(step)(meta.array(x))
    assert sorted(set(names)) == ["max_pool2d_dx", "max_pool2d_with_indices"]
    tracked = meta.array(x, requires_grad=True)
    expected = meta.max_pool2d(meta.tanh(tracked), 2).sum()
    expected.backward()
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5)
    assert tracked.grad is not None
    np.testing.assert_allclose(dx.numpy(), tracked.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_integers_that_floats_do_not_hold(dialect: str) -> None:
    """Pooling and resizing compare and copy integers as integers."""
    first = 2**53
    x = meta.array(np.array([[[0, 1, -1, 3, 2, -2]]], np.int64) + first)
    with meta.with_dialect(dialect):
        y, indices = meta.max_pool1d_with_indices(x, 2)
        pooled = (meta.max_pool1d(x, 2), y, meta.adaptive_max_pool1d(x, 3))
        resized = meta.resize1d(x, 3, "nearest", "asymmetric", "floor")
    assert indices.tolist() == [[[1, 3, 4]]]
    assert all((t.numpy() - first).tolist() == [[[1, 3, 2]]] for t in pooled)
    assert (resized.numpy() - first).tolist() == [[[0, -1, 2]]]
