"""Operators that join tensors, or add axes to several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, into

ROWS: Rows = {
    "atleast_1d": "atleast_1d", "atleast_2d": "atleast_2d", "atleast_3d": "atleast_3d", "column_stack": "column_stack",
    "dstack": "dstack", "hstack": "hstack", "row_stack": "vstack", "vstack": "vstack",
}  # fmt: skip


@into(ROWS)
def block_diag(tensors: Sequence[Any]) -> Any:
    return meta.block_diag(*tensors)


@into(ROWS)
def cartesian_prod(tensors: Sequence[Any]) -> Any:
    return meta.cartesian_prod(*tensors)


@into(ROWS)
def meshgrid(tensors: Sequence[Any], *, indexing: str = "ij") -> Any:
    return meta.meshgrid(*tensors, indexing=indexing)  # type: ignore[arg-type]


@into(ROWS)
def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Tensors of different lengths as one, filled up at one side."""
    longest = max(x.shape[0] for x in sequences)
    padded: list[Any] = []
    for x in sequences:
        missing = longest - x.shape[0]
        width = (0, missing) if padding_side == "right" else (missing, 0)
        padded.append(meta.pad(x, (*width, *(0,) * (2 * x.ndim - 2)), padding_value) if missing else x)
    return meta.stack(padded, 0 if batch_first else 1)
