"""Composed functions compared with torch: values, dtypes and gradients, on one set of random inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meta
from meta.testing.arrays import check, to_torch

Function = Callable[..., Any]


def floats(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Any:
    """Random float32 numbers from `low` to `high`."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def listed(results: Any) -> list[Any]:
    """One or several results as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def same(ours: Any, theirs: Any) -> None:
    """Check that results have equal dtypes, shapes and values."""
    results, expected = listed(ours), listed(theirs)
    assert len(results) == len(expected)
    for y, w in zip(results, expected, strict=True):
        assert y.dtype == str(w.dtype).removeprefix("torch.")
        check(y.detach(), w.detach())


def compare(ours: Function, theirs: Function, hosts: Sequence[Any]) -> None:
    """Check values and dtypes of `ours(*arrays)` against `theirs(*tensors)`, and the gradients of floating inputs."""
    arrays, tensors = [meta.array(h) for h in hosts], [to_torch(h) for h in hosts]
    tracked = [i for i, t in enumerate(tensors) if t.is_floating_point()]
    for i in tracked:
        arrays[i].requires_grad = True
        tensors[i].requires_grad_()
    results, expected = ours(*arrays), theirs(*tensors)
    same(results, expected)
    pairs = [(y, w) for y, w in zip(listed(results), listed(expected), strict=True) if w.requires_grad]
    if not pairs:
        return
    for n, (y, w) in enumerate(pairs):
        dy = floats(*w.shape, seed=n)
        y.backward(meta.array(dy), retain_graph=True)
        w.backward(to_torch(dy), retain_graph=True)
    for i in tracked:
        if tensors[i].grad is not None:
            check(arrays[i].grad, tensors[i].grad, rtol=1e-4)
