"""Sequences between numbers and tensors, and tensors without values."""

from __future__ import annotations

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
