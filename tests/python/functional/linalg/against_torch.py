"""Comparison of a function with torch's: values, gradients and gradients of gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import meta
from meta.testing.arrays import to_torch

Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0) -> Any:
    """Normally distributed float64 values."""
    return np.random.default_rng(sum(shape) + seed).normal(size=shape)


def assert_same(ours: Any, theirs: Any, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    """Equal shapes and dtypes, and close values."""
    assert (ours.shape, ours.dtype) == (tuple(theirs.shape), str(theirs.dtype).removeprefix("torch."))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(force=True), rtol, atol)


def compare(ours: Function, theirs: Function, hosts: Sequence[Any], order: int = 2) -> None:
    """Both functions on the same arrays: results, and gradients up to `order` of those that are floating."""
    arrays, tensors = [meta.array(h) for h in hosts], [to_torch(h) for h in hosts]
    for x, t in zip(arrays, tensors, strict=True):
        x.requires_grad = t.is_floating_point() and order > 0
        t.requires_grad_(x.requires_grad)
    results, reference = _listed(ours(*arrays)), _listed(theirs(*tensors))
    assert len(results) == len(reference)
    for y, t in zip(results, reference, strict=True):
        assert_same(y, t)
    leaves = [x for x in arrays if x.requires_grad]
    sources = [t for t in tensors if t.requires_grad]
    for level in range(order):
        kept = [(y, t) for y, t in zip(results, reference, strict=True) if t.requires_grad]
        if not kept:
            return
        results, reference = [y for y, _ in kept], [t for _, t in kept]
        seeds = [normal(*t.shape, seed=level + n) for n, t in enumerate(reference)]
        more = level + 1 < order
        gradients = meta.autograd.grad(
            results, leaves, [meta.array(s) for s in seeds], create_graph=more, allow_unused=True
        )
        expected = torch.autograd.grad(
            reference, sources, [to_torch(s) for s in seeds], create_graph=more, allow_unused=True
        )
        pairs = [_filled(g, w) for g, w in zip(gradients, expected, strict=True) if g is not None or w is not None]
        for g, w in pairs:
            assert_same(g, w, 1e-7, 1e-7)
        results, reference = [g for g, _ in pairs], [w for _, w in pairs]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _filled(g: Any, w: Any) -> tuple[Any, Any]:
    """A gradient that one of the libraries leaves out is zeros."""
    return (
        meta.zeros(tuple(w.shape), "float64") if g is None else g,
        torch.zeros(g.shape, dtype=torch.float64) if w is None else w,
    )
