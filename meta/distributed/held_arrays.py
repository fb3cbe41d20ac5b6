"""The arrays of a training step's state, and the part of each that a rank holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meta.dtype import itemsize
from meta.optim.train_step import TrainStep

if TYPE_CHECKING:
    from meta.distributed.shards import Shard
    from meta.distributed.tensor.parameters import ParameterPart


@dataclass(frozen=True, slots=True)
class HeldArray:
    """An array of a step's state. share: of its elements that a rank keeps, 1 for the whole array.
    size: bytes on a rank, with the padding of a shard.  whole: bytes in one process, 0 for a copy that it has not.
    where: "each rank", or what is divided among which ranks, such as "axis 0 over tp, elements over dp"."""

    name: str
    share: float
    size: int
    whole: int
    where: str = "each rank"


def held_arrays(step: TrainStep, shards: Sequence[Shard], parts: Sequence[ParameterPart]) -> tuple[HeldArray, ...]:
    """The arrays of a step's state. shards, parts: the parameters that its exchanges divide."""
    by_id = {id(shard.array): shard for shard in shards}
    by_name = {f"{shard.name}.shard": shard for shard in shards}
    held: list[HeldArray] = []
    for name, x in step.named_state():
        shard = by_id.get(id(x)) or by_name.get(name.rpartition(".")[0])
        if shard is not None and x.shape != shard.array.shape:
            shard = None  # a number, such as the count of updates
        part = next((p for p in parts if p.owns(name) and (shard is not None or x.shape == p.shape)), None)
        where = [] if part is None else [f"{part.placement} over {part.group.name}"]
        where += [] if shard is None else [f"elements over {shard.group.name}"]
        share = (1.0 if shard is None else 1 / shard.group.ranks) / (1 if part is None else part.group.ranks)
        shape: Any = part.kind.shape if part is not None else x.shape if shard is None else shard.shape
        size, whole = (math.prod(each) * itemsize(x.dtype) for each in (x.shape, shape))
        if shard is not None and x is shard.array and x is not shard.parameter:
            whole = 0  # all ranks have the parameter as well
        held.append(HeldArray(name, share, size, whole, ", ".join(where) or "each rank"))
    return tuple(held)
