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
