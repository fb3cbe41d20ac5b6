"""Copies of arrays: copy, deepcopy and update."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import meta
from meta.errors import GradientError, TypeInferenceError


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_leaf_is_a_leaf_with_its_own_memory(how: Any) -> None:
    x = meta.array([1.0, 2.0])
    x.requires_grad = True
    y = how(x)
    assert y.requires_grad
    assert y.is_leaf
    (y * y).sum().backward()
    assert x.grad is None
    with meta.no_grad():
        y[0] = 9.0
    assert x.detach().tolist() == [1.0, 2.0]


def test_a_deep_copy_keeps_identity_and_gradients() -> None:
    x = meta.array([1.0, 2.0])
    x.requires_grad = True
    (x * x).sum().backward()
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first.grad.tolist() == [2.0, 4.0]
    assert first.grad is not x.grad


def test_rejects_copies_of_computed_arrays() -> None:
    x = meta.array([1.0])
    x.requires_grad = True
    with pytest.raises(GradientError, match=rf"use x\.detach\(\) \(at {__file__}:"):
        copy.deepcopy(x * x)
    assert not pickle.loads(pickle.dumps(x * x)).requires_grad


def test_update_replaces_the_values() -> None:
    x = meta.array([1.0, 2.0])
    alias = x.numpy()
    x.update(meta.array([3.0, 4.0]))
    assert alias.tolist() == [3.0, 4.0]
    assert x.detach().version == x.version
    with pytest.raises(TypeInferenceError, match="the array's own type"):
        x.update(meta.array([1, 2]))
