"""concatenate by ATen, which copies whole rows; a TE compute selects an operand for every element. Others, for complex
numbers, as views that are copied."""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dialect.torch import DIALECT, complex_only


def concatenate(xs: list[Any], axis: int, *, out: Any) -> None:
    torch.cat(xs, axis, out=out)


def _split(x: Any, indices_or_sections: int | tuple[int, ...], axis: int) -> tuple[Any, ...]:
    return torch.tensor_split(x, indices_or_sections, axis)


DIALECT.implement("concatenate", concatenate)
complex_only(
    {
        "broadcast_to": "broadcast_to",
        "broadcast_to_like": lambda torch: lambda x, like: x.expand_as(like),
        "cast": lambda torch: lambda x, dtype: x.real if x.is_complex() and "complex" not in dtype else x,
        "cast_like": lambda torch: lambda x, like: x if like.is_complex() else x.real,
        "moveaxis": "movedim",
        "split": lambda torch: _split,
        "stack": "stack",
        "swap_axis": "swapaxes",
        "transpose": lambda torch: lambda x, axes: x.permute(tuple(range(x.ndim))[::-1] if axes is None else axes),
    }
)
