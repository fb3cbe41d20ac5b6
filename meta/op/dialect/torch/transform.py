"""Joining tensors by ATen, which copies whole rows where a compute has to choose an operand for every element."""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dialect.torch import DIALECT
from meta.op.dispatch import CallInfo, too_small

SMALL = 4096
"""Elements below which views of the operands cost more on the CPU than choosing does."""
SMALL_CUDA = 1 << 23
"""The same on CUDA (two matrices of 1024 x 1024: 10 us for 16)."""


def _worth_it(call: CallInfo) -> str | None:
    (out,) = call.outputs()
    if not out.is_static:
        return None
    count: Any = out.size
    return too_small(count, SMALL if call.device.kind == "cpu" else SMALL_CUDA, "elements")


def concatenate(xs: list[Any], axis: int, *, out: Any) -> None:
    torch.cat(xs, axis, out=out)


DIALECT.implement("concatenate", concatenate, accepts=_worth_it)
