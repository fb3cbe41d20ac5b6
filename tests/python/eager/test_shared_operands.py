"""Operators that update operands, called with operands that share memory: all are read before any is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import meta

Update = Callable[..., Any]
UPDATES: dict[str, tuple[Update, int]] = {
    "sgd": (lambda w, g, m: meta.sgd(w, g, m, 0.1, 0.9), 3),
    "adam": (lambda w, g, m, v: meta.adam(w, g, m, v, None, 0.1, 0.9, 0.99, 1e-2, 0.0), 4),
    "amsgrad": (lambda w, g, m, v, x: meta.amsgrad(w, g, m, v, x, None, 0.1, 0.9, 0.99, 1e-2, 0.0), 5),
    "rmsprop": (lambda w, g, s, m: meta.rmsprop(w, g, s, m, 0.1, 0.9, 1e-2, 0.0, 0.9), 4),
    "adagrad": (lambda w, g, s: meta.adagrad(w, g, s, 0.1, 1e-2), 3),
    "batch_norm_train": (lambda b, m, v: meta.batch_norm_train(_image(), m, v, None, b, 0.3, 1e-2), 3),
}
"""Each function with the number of its operands; the first result of those that have a weight replaces it."""
CASES = [
    (name, places) for name, (_, count) in UPDATES.items() for places in permutations(range(count), 2)
    if places[0] < places[1]
]  # fmt: skip
each_pair = pytest.mark.parametrize(("name", "places"), CASES, ids=lambda x: str(x).replace(" ", ""))


def _image() -> Any:
    return meta.array(np.random.default_rng(9).standard_normal((5, 24)))


def _operands(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [meta.array(np.abs(rng.standard_normal(24)) + 0.1) for _ in range(count)]


def _expected(update: Update, operands: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [x.numpy(copy=True) for x in update(*(x.copy() for x in operands))]


@each_pair
@pytest.mark.parametrize("alias", [lambda x: x, lambda x: x.detach(), lambda x: x.reshape((4, 6)).reshape((24,))],
                         ids=["same", "detached", "view"])  # fmt: skip
def test_two_operands_may_be_one_array(name: str, places: tuple[int, int], alias: Callable[[Any], Any]) -> None:
    """Of results that replace one array the last one stays."""
    update, count = UPDATES[name]
    operands = _operands(count)
    operands[places[1]] = alias(operands[places[0]])
    expected = _expected(update, operands)
    results = update(*operands)
    address = operands[places[0]].numpy().ctypes.data
    shared = [i for i, x in enumerate(results) if x.numpy().ctypes.data == address]
    for i, (got, want) in enumerate(zip(results, expected, strict=True)):
        np.testing.assert_array_equal(got.numpy(), expected[shared[-1]] if i in shared else want)


@each_pair
def test_programs_read_all_operands_first(name: str, places: tuple[int, int]) -> None:
    update, count = UPDATES[name]
    arrays: list[list[Any]] = []
    for wrap in (lambda f: f, lambda f: meta.vm.compile(meta.trace(f))):
        operands = _operands(count)
        operands[places[1]] = operands[places[0]]
        results = wrap(lambda: update(*operands))()  # noqa: B023 - called at once
        arrays.append([x.numpy(copy=True) for x in (*operands, *results)])
    for got, want in zip(*arrays, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_memory_of_others_may_overlap_in_part() -> None:
    """Arrays over parts of one NumPy array: the weight lies one element behind the gradient."""
    host = np.linspace(0.5, 2.0, 33)
    weight, gradient, state = meta.from_numpy(host[1:]), meta.from_numpy(host[:-1]), meta.ones((32,), dtype="float64")
    if weight.numpy().ctypes.data != host[1:].ctypes.data:
        pytest.skip("memory at this address is copied")
    expected = _expected(UPDATES["adagrad"][0], [weight, gradient, state])
    results = UPDATES["adagrad"][0](weight, gradient, state)
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
