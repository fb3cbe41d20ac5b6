"""concatenate by ATen, which copies whole rows; a TE compute selects an operand for every element."""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dialect.torch import DIALECT


def concatenate(xs: list[Any], axis: int, *, out: Any) -> None:
    torch.cat(xs, axis, out=out)


DIALECT.implement("concatenate", concatenate)
