"""Sorting by ATen, stable as in the other dialects; of values without positions by NumPy, whose sort has vector
instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

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


DIALECT.implement("argsort", argsort)
DIALECT.implement("sort", sort)
