"""Copies of arrays: copy, deepcopy and update, and where their memory starts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import GradientError, TypeInferenceError
from meta.files.into_memory import allocate
from meta.ir.printer import decode_data, encode_data


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


def starting_at(offset: int, values: Any) -> Any:
    """A compact copy whose memory starts `offset` bytes after a multiple of 64."""
    memory: Any = np.zeros(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    x = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    x[:] = values
    return x


COPIES: list[Callable[[Any], Any]] = [
    meta.array,
    lambda x: meta.asarray(x[::-1]),
    lambda x: meta.array(torch.from_numpy(x)),
    lambda x: meta.array(x.tolist(), dtype="float64"),
    lambda x: copy.deepcopy(meta.from_numpy(x)),
    lambda x: pickle.loads(pickle.dumps(meta.from_numpy(x))),
    lambda x: allocate(x.shape, x.dtype),
    lambda x: decode_data(encode_data(x), meta.from_numpy(x).type),
]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_start_at_a_multiple_of_64_bytes(copied: Any) -> None:
    arrays = [copied(starting_at(8, np.zeros(count))) for count in (2, 3, 17, 1000, 200_000)]  # all in use
    assert [meta.asarray(x)._data.data_ptr() % 64 for x in arrays] == [0] * len(arrays)


def test_loaded_arrays_start_at_a_multiple_of_64_bytes(tmp_path: Path) -> None:
    meta.save(tmp_path / "arrays", [meta.ones((n,)) for n in (1, 3, 17, 1000)])
    assert all(x._data.data_ptr() % 64 == 0 for x in meta.load(tmp_path / "arrays"))


def test_products_of_equal_values_have_equal_bits() -> None:
    """The library that computes them rounds differently for operands that start elsewhere."""
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal((17, 17)), meta.array(rng.standard_normal((17, 17)))
    results = [meta.dense(meta.array(starting_at(n, values)), weights).numpy().tobytes() for n in range(0, 64, 8)]
    assert results == results[:1] * 8
