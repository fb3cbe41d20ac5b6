"""Forward and backward in many threads on shared leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import meta
from meta.eager.gradient_graph import record_write
from meta.testing import check

THREADS, ROUNDS = 8, 40


@pytest.fixture(autouse=True)
def fast_switching() -> Iterator[None]:
    """Switch threads far more often than by default."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(function: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, range(THREADS)))


def leaf() -> meta.NDArray:
    x = meta.array(np.ones((4, 4), "float32"))
    x.requires_grad = True
    return x


def test_no_gradient_is_lost() -> None:
    x = leaf()

    def work(_: int) -> None:
        for _ in range(ROUNDS):
            (x * 2).sum().backward()

    run_in_threads(work)
    check(x.grad, np.full((4, 4), 2.0 * THREADS * ROUNDS))


def test_concurrent_backward_on_one_retained_graph() -> None:
    x = leaf()
    y = meta.exp(meta.softmax(x) * x).sum()

    def work(_: int) -> None:
        for _ in range(ROUNDS):
            y.backward(retain_graph=True)

    work(0)
    assert x.grad is not None
    once = x.grad.numpy() / ROUNDS
    x.grad = None
    run_in_threads(work)
    check(x.grad, once * THREADS * ROUNDS, rtol=1e-4)


def test_new_shapes_from_many_threads() -> None:
    """Kernels and dispatch entries built concurrently are right in every thread."""

    def work(index: int) -> None:
        for size in range(1, 12):
            x = meta.array(np.full((size, index % 3 + 1), 2.0, "float32"))
            x.requires_grad = True
            (x * x + x).sum().backward()
            check(x.grad, np.full(x.shape, 5.0))

    run_in_threads(work)


def test_concurrently_created_aliases_share_one_version() -> None:
    for _ in range(50):
        x = meta.ones((2,))
        aliases = run_in_threads(lambda _, x=x: x.detach())
        for alias in aliases:
            record_write("update", alias)  # type: ignore[arg-type]
        assert x._version == [THREADS]


def test_modes_do_not_leak_between_threads() -> None:
    x = leaf()

    def work(index: int) -> bool:
        gradients = []
        for _ in range(ROUNDS):
            if index % 2:
                with meta.no_grad():
                    gradients.append((x * 2).requires_grad)
            else:
                gradients.append(not (x * 2).requires_grad)
        return any(gradients)

    assert not any(run_in_threads(work))
