"""Joining tensors by ATen, which copies whole rows where a compute has to choose an operand for every element."""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dialect.torch import DIALECT
from meta.op.dispatch import CallInfo

SMALL = 4096
"""Elements up to which views of the operands cost more on the CPU than choosing does."""


def _worth_it(call: CallInfo) -> str | None:
    (out,) = call.outputs()
    if call.device.kind != "cpu" or not out.is_static:
        return None
    count: Any = out.size
    return f"{count} elements, too few: up to {SMALL} the call itself costs more" if count <= SMALL else None


def concatenate(xs: list[Any], axis: int, *, out: Any) -> None:
    torch.cat(xs, axis, out=out)


DIALECT.implement("concatenate", concatenate, accepts=_worth_it)
