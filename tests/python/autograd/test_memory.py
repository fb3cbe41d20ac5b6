"""Memory of the tape: values are freed as early as possible, without cycles and at any depth."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import meta
from meta.testing import check


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(value: float = 1.0) -> meta.NDArray:
    x = meta.array(np.full(3, value, "float32"))
    x.requires_grad = True
    return x


@pytest.mark.usefixtures("without_garbage_collection")
@pytest.mark.parametrize(
    "op",
    [
        meta.exp, meta.tanh, meta.softmax, lambda x: x * x, lambda x: meta.concatenate([x, x]),
        lambda x: meta.topk(x, 2)[0], lambda x: meta.split(x, 3)[1],
    ],
)  # fmt: skip
def test_dropped_results_are_freed_at_once(op: object) -> None:
    x = leaf()
    y = op(x)  # type: ignore[operator]
    result, node = weakref.ref(y), weakref.ref(y._node)
    del y
    assert result() is None
    assert node() is None


@pytest.mark.usefixtures("without_garbage_collection")
def test_backward_frees_saved_values() -> None:
    x = leaf()
    h = meta.exp(x)
    reference = weakref.ref(h)
    y = (h * h).sum()
    del h
    assert reference() is not None
    y.backward()
    assert reference() is None


@pytest.mark.usefixtures("without_garbage_collection")
def test_does_not_keep_values_that_no_gradient_reads() -> None:
    x = leaf()
    h = x + 1
    reference = weakref.ref(h)
    y = (h + 2).sum()
    del h
    assert reference() is None
    y.backward()
    check(x.grad, np.ones(3))


@pytest.mark.usefixtures("without_garbage_collection")
def test_functions_that_save_their_results_create_no_cycle() -> None:
    class Exp(meta.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = meta.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved_arrays[0]

    y = Exp.apply(leaf())
    reference = weakref.ref(y)
    del y
    assert reference() is None


def test_deleted_leaves_get_no_gradient() -> None:
    x, w = leaf(), leaf()
    y = (x + w).sum()
    del x
    y.backward()
    check(w.grad, np.ones(3))


def test_backward_through_100000_calls() -> None:
    x = leaf(0.0)
    y = x
    for _ in range(100_000):
        y = y + x
    y.sum().backward()
    check(x.grad, np.full(3, 100_001.0))
    del y


def test_frees_a_long_chain_without_backward() -> None:
    x = leaf(0.0)
    y = x
    for _ in range(100_000):
        y = meta.tanh(y)
    node = weakref.ref(y._node)
    del y
    assert node() is None


def test_grad_of_a_long_chain() -> None:
    x = leaf(0.0)
    y = x
    for _ in range(20_000):
        y = y + x
    (g,) = meta.autograd.grad(y.sum(), x)
    check(g, np.full(3, 20_001.0))
