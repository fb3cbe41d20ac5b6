"""All samples whose operator takes complex numbers: the torch and the reference dialect agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import DispatchError
from meta.testing.samples import Sample
from tests.python.op.samples import samples

HERMITIAN = {"cholesky_ex", "eigh"}
"""Operators of Hermitian matrices, which test_complex_matrices.py has: results of other matrices are undefined."""


def rows() -> list[Sample]:
    return [s for s in samples() if s.is_floating and s.op not in (*HERMITIAN, "shape") and s.accepts("complex128")]


def _complex(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_complex(item, rng) for item in value)
    if not isinstance(value, np.ndarray):
        return value
    return meta.array(value + 1j * rng.uniform(-1, 1, value.shape) if value.dtype == np.float64 else value)


@pytest.mark.parametrize("sample", rows(), ids=repr)
def test_dialects_agree(sample: Sample) -> None:
    rng, (args, kwargs) = np.random.default_rng(0), sample.numpy("float64")
    args, kwargs = _complex(args, rng), {name: _complex(value, rng) for name, value in kwargs.items()}
    results: list[list[Any]] = []
    for dialect in ("torch", "reference"):
        with meta.with_dialect(dialect):
            try:
                out = getattr(meta, sample.op)(*args, **kwargs)
            except DispatchError:
                return  # one dialect only
        results.append([y.numpy() for y in (out if isinstance(out, (tuple, list)) else [out])])
    for ours, expected in zip(*results, strict=True):
        assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
