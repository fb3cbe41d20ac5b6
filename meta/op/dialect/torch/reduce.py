"""Reductions by ATen, for complex numbers."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.torch import complex_only


def _reduction(name: str) -> Any:
    """A reduction along axes. ATen takes () for all of them."""
    return lambda torch: lambda x, axis, keepdims: x if axis == () else getattr(torch, name)(x, axis, keepdims)


def _truth(name: str) -> Any:
    return lambda torch: lambda x, axis, keepdims: _reduction(name)(torch)((x != 0), axis, keepdims)


complex_only(
    {
        "all": _truth("all"),
        "any": _truth("any"),
        "mean": _reduction("mean"),
        "sum": _reduction("sum"),
        "sum_to": lambda torch: lambda x, shape: x.sum_to_size(shape),
    }
)
