"""Sequences between numbers and tensors, tensors without values, and padded sequences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import meta
from meta.errors import TypeInferenceError
from meta.frontend.torch import aten
from tests.python.functional.against_torch import same


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_powers(count: int) -> None:
    same(meta.logspace(-1, 2, count), torch.logspace(-1, 2, count))
    ours = meta.logspace(meta.array(0.5), 2, count, 2.0, "float64")
    same(ours, torch.logspace(torch.tensor(0.5), 2, count, base=2.0, dtype=torch.float64))
    linspace = aten.find("linspace")
    assert linspace is not None
    same(linspace(meta.array(0.5), meta.array(3.0), count), torch.linspace(torch.tensor(0.5), torch.tensor(3.0), count))


def test_powers_of_integer_dtypes_in_aten() -> None:
    logspace = aten.find("logspace")
    assert logspace is not None
    same(logspace(-2, 4.3, 2, 2.5, dtype="int64"), torch.logspace(-2, 4.3, 2, 2.5, dtype=torch.int64))


def test_empty_tensors_have_a_type_alone() -> None:
    assert (meta.empty((2, 0), "int32").type, meta.empty_like(meta.ones((3,)), "bool").dtype) == (
        meta.zeros((2, 0), "int32").type,
        "bool",
    )


def test_refusals() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[logspace\] an end has shape \(2,\); expected numbers and 0-d"):
        meta.logspace(meta.ones((2,)), 1, 3)
    with pytest.raises(TypeInferenceError, match=r"\[logspace\] num is -1; expected 0 or more"):
        meta.logspace(0, 1, -1)


@pytest.mark.parametrize("axis", [0, 1])
def test_sequence_mask_writes_the_steps_from_the_length_on(axis: int) -> None:
    x, lengths = np.arange(24, dtype=np.float32).reshape(3, 4, 2) + 1, [2, 0, 4][: 4 - axis] + [1] * (1 - axis)
    expected = x.copy()
    for i, length in enumerate(lengths):
        expected[(slice(length, None), i) if axis == 0 else (i, slice(length, None))] = -1
    for dtype in ("int32", "int64"):
        ours = meta.sequence_mask(meta.array(x), meta.array(lengths).cast(dtype), -1.0, axis)
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize(("seq_axis", "batch_axis"), [(1, 0), (0, 1), (-1, 0)])
def test_reverse_sequence_reverses_the_first_steps(seq_axis: int, batch_axis: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    lengths = [2, 0, 2, 1][: x.shape[batch_axis]]
    expected = np.moveaxis(x.copy(), (batch_axis, seq_axis), (0, 1))
    for row, length in zip(expected, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    x_array = meta.array(x, requires_grad=True)
    ours = meta.reverse_sequence(x_array, meta.array(lengths), seq_axis, batch_axis)
    np.testing.assert_array_equal(ours.detach().numpy(), np.moveaxis(expected, (0, 1), (batch_axis, seq_axis)))
    ours.backward(ours.detach())
    assert x_array.grad is not None
    np.testing.assert_array_equal(x_array.grad.numpy(), x)


def test_lengths_of_sequences_are_one_integer_for_each() -> None:
    x = meta.ones((3, 4))
    with pytest.raises(TypeInferenceError, match=r"'sequence_length' is int64 of shape \(2,\); expected int"):
        meta.reverse_sequence(x, meta.array([1, 2]))
    with pytest.raises(TypeInferenceError, match=r"'sequence_length' is float32 of shape \(4,\); expected int"):
        meta.sequence_mask(x, meta.ones((4,)))
    with pytest.raises(TypeInferenceError, match=r"\[sequence_mask\] axis is 2; expected 0 or 1"):
        meta.sequence_mask(x, meta.array([1, 2, 3, 4]), axis=2)
    with pytest.raises(TypeInferenceError, match=r"\[reverse_sequence\] steps and batch are both along axis 0"):
        meta.reverse_sequence(x, meta.array([1, 2, 3]), 0, 0)
