"""Collectives of one rank; the reference dialect communicates with no other process."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.ir.expr import CallInfo
from meta.op.dialect.reference import DIALECT


def _refuse_ranks(call: CallInfo) -> str | None:
    return None if call.bind()["ranks"] == 1 else "for one rank only: torch.distributed communicates"


def _identity(x: Any, *_: Any) -> Any:
    return x


def send_receive(x: Any, pairs: tuple[int, ...], group: str, ranks: int) -> Any:
    return x if pairs else np.zeros_like(x)


def group_rank(group: str, ranks: int, device: Any) -> Any:
    return np.int64(0)


for _name in (
    "all_reduce", "all_reduce_when", "all_gather", "reduce_scatter", "broadcast_from", "reduce_to", "all_to_all",
    "barrier",
):  # fmt: skip
    DIALECT.implement(_name, _identity, accepts=_refuse_ranks)
DIALECT.implement("send_receive", send_receive, accepts=_refuse_ranks)
DIALECT.implement("group_rank", group_rank, accepts=_refuse_ranks)
