"""Sorting by ATen, stable as in the other dialects; of values without positions by NumPy, whose sort has vector
instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from meta._generated import limits
from meta.op.dialect.torch import DIALECT


def argsort(x: Any, axis: int, descending: bool, *, out: Any) -> None:
    torch.sort(x, stable=True, dim=axis, descending=descending, out=(torch.empty_like(x), out))


def sort(x: Any, axis: int, descending: bool, *, out: Any) -> None:
    if x.ndim and x.device.type == "cpu" and x.dtype != torch.bfloat16 and not _has_negative_zero(x):
        out.copy_(x)
        values = out.numpy()
        (np.flip(values, axis) if descending else values).sort(axis)
        return
    torch.sort(x, stable=True, dim=axis, descending=descending, out=(out, torch.empty_like(x, dtype=torch.int64)))


def _has_negative_zero(x: Any) -> bool:
    """Whether the order of equal elements shows: NumPy's sort is not stable."""
    return x.is_floating_point() and bool((torch.signbit(x) & (x == 0)).any())


def topk(x: Any, k: int, axis: int, largest: bool, *, out: Any) -> None:
    ordered = _select_extremes(x, k, axis, largest) or torch.sort(x, stable=True, dim=axis, descending=largest)
    for result, source in zip(out, ordered, strict=True):
        result.copy_(source.narrow(axis, 0, k) if x.ndim else source)


def _select_extremes(x: Any, k: int, axis: int, largest: bool) -> Any:
    """The k + 1 extreme elements and their positions, without a full sort. None if that costs more, or if equal
    elements or NaN make the order ambiguous. CPU only: elsewhere comparing values would wait for the device."""
    if (
        not x.ndim
        or x.device.type != "cpu"
        or not x.is_floating_point()
        or limits.SELECTED_FRACTION * (k + 1) > x.shape[axis]
    ):
        return None
    values, indices = torch.topk(x, k + 1, axis, largest)
    ordered = values.narrow(axis, 1, k), values.narrow(axis, 0, k)
    distinct = torch.lt(*ordered) if largest else torch.gt(*ordered)
    return (values, indices) if bool(distinct.all()) else None


DIALECT.implement("argsort", argsort)
DIALECT.implement("sort", sort)
DIALECT.implement("topk", topk)
