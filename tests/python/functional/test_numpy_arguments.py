"""Composed functions take NumPy arrays as operators do."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import meta

A = np.arange(1.0, 10.0, dtype="float32").reshape(3, 3)


@pytest.mark.parametrize("name", ["cdist", "cosine_similarity", "normalize", "nansum", "quantile", "histc", "addmm"])
def test_results_equal_the_results_for_arrays(name: str) -> None:
    further: dict[str, Any] = {"quantile": (0.5,), "addmm": (A, A), "cdist": (A + 1,), "cosine_similarity": (A[:1],)}
    args = (A, *further.get(name, ()))
    function = getattr(meta, name)
    arrays = [meta.array(x) if isinstance(x, np.ndarray) else x for x in args]
    np.testing.assert_array_equal(function(*args).numpy(), function(*arrays).numpy())


def test_lists_keywords_and_modules() -> None:
    grids = meta.meshgrid([A[0], A[1]], indexing="ij")
    assert [g.tolist() for g in grids] == [g.tolist() for g in np.meshgrid(A[0], A[1], indexing="ij")]
    assert meta.chunk(x=A, chunks=3, axis=0)[1].tolist() == [A[1].tolist()]
    np.testing.assert_allclose(meta.linalg.norm(A).item(), np.linalg.norm(A), rtol=1e-6)
    np.testing.assert_allclose(meta.fft.fftshift(A).numpy(), np.fft.fftshift(A))
    assert list(inspect.signature(meta.addmm).parameters)[:3] == ["x", "x1", "x2"]


def test_the_device_and_the_gradient_come_from_the_tensors() -> None:
    x = meta.array(A, requires_grad=True)
    meta.cdist(x, A + 1).sum().backward()
    t = torch.tensor(A, requires_grad=True)
    torch.cdist(t, torch.tensor(A + 1)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-5)  # type: ignore[union-attr]
