"""Sorting by ATen, stable like the other dialects."""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dialect.torch import DIALECT

FEW = 8
"""Part of an axis below which the extreme elements are selected instead of sorted."""


def argsort(x: Any, axis: int, descending: bool, *, out: Any) -> None:
    torch.sort(x, stable=True, dim=axis, descending=descending, out=(torch.empty_like(x), out))


def sort(x: Any, axis: int, descending: bool, *, out: Any) -> None:
    torch.sort(x, stable=True, dim=axis, descending=descending, out=(out, torch.empty_like(x, dtype=torch.int64)))


def topk(x: Any, k: int, axis: int, largest: bool, *, out: Any) -> None:
    ordered = _selected(x, k, axis, largest) or torch.sort(x, stable=True, dim=axis, descending=largest)
    for result, whole in zip(out, ordered, strict=True):
        result.copy_(whole.narrow(axis, 0, k))


def _selected(x: Any, k: int, axis: int, largest: bool) -> Any:
    """The k + 1 extreme elements and their positions, found without sorting all; None where that does not pay, or where
    equal elements (or NaN) leave open which of them come first. On other devices looking at values would wait for
    them."""
    if x.device.type != "cpu" or not x.is_floating_point() or FEW * (k + 1) > x.shape[axis]:
        return None
    values, indices = torch.topk(x, k + 1, axis, largest)
    ordered = values.narrow(axis, 1, k), values.narrow(axis, 0, k)
    distinct = torch.lt(*ordered) if largest else torch.gt(*ordered)
    return (values, indices) if bool(distinct.all()) else None


DIALECT.implement("argsort", argsort)
DIALECT.implement("sort", sort)
DIALECT.implement("topk", topk)
