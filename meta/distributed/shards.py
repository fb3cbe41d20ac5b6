"""Shards: the equal parts of parameters that ranks hold as vectors, and the messages that join and divide them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import meta
from meta.distributed import process
from meta.distributed.buckets import buckets
from meta.distributed.mesh import Group
from meta.eager.ndarray import NDArray
from meta.modes import modes, no_grad


class Shard:
    """One parameter that is divided among the ranks.

    name: of the parameter.  parameter: the whole array, in stages 1 and 2.  array: this rank's part, a vector.
    shape: of the whole parameter.  others: groups of other exchanges that also divide it."""

    __slots__ = ("array", "group", "name", "others", "parameter", "shape")

    def __init__(self, name: str, parameter: NDArray, group: Group, others: tuple[tuple[str, int], ...] = ()) -> None:
        self.name = name
        self.parameter = parameter
        self.shape = parameter.shape
        self.group = group
        self.others = others
        with no_grad():
            self.array = self.own_part(parameter.detach())
        self.array.requires_grad = parameter.requires_grad

    def padded(self, x: Any) -> Any:
        """A tensor of the parameter's shape as a vector of whole shards."""
        flat = meta.reshape(x, (-1,))
        extra = -flat.shape[0] % self.group.ranks
        return meta.pad(flat, ((0, extra),)) if extra else flat

    def own_part(self, x: Any) -> Any:
        """This rank's part of a tensor that all ranks have."""
        rows = meta.reshape(self.padded(x), (self.group.ranks, -1))
        return meta.take(rows, own_rank(self.group, x.device), 0)

    def unpadded(self, rows: Any) -> Any:
        """The tensor of the parameter's shape, from the ranks' shards in the rows of a tensor."""
        flat, size = meta.reshape(rows, (-1,)), math.prod(self.shape)
        return meta.reshape(flat if flat.shape[0] == size else flat[:size], self.shape)


def own_rank(group: Group, device: Any) -> Any:
    """The number of this rank in a group, a 0-d tensor; in programs, one that is known at run time."""
    if modes.trace is not None:
        return meta.group_rank(*group, device=device)
    return meta.array(process.position(*group), device=device)


def gather(shards: Sequence[Shard], parts: Sequence[Any]) -> list[Any]:
    """Whole tensors from `parts`, their shards on this rank, in one message; differentiable."""
    ranks = shards[0].group.ranks
    joined = parts[0] if len(parts) == 1 else meta.concatenate(parts, 0)
    rows = meta.reshape(meta.all_gather(joined, 0, *shards[0].group), (ranks, -1))
    pieces = (rows,) if len(parts) == 1 else meta.split(rows, _ends(shards), 1)
    return [shard.unpadded(piece) for shard, piece in zip(shards, pieces, strict=True)]


def scatter_mean(shards: Sequence[Shard], tensors: Sequence[Any]) -> list[Any]:
    """This rank's shards of the means of the ranks' tensors, in one message."""
    ranks = shards[0].group.ranks
    rows = [meta.reshape(shard.padded(x), (ranks, -1)) for shard, x in zip(shards, tensors, strict=True)]
    joined = rows[0] if len(rows) == 1 else meta.concatenate(rows, 1)
    own = meta.reshape(meta.reduce_scatter(joined, 0, "mean", *shards[0].group), (-1,))
    return [own] if len(rows) == 1 else list(meta.split(own, _ends(shards), 0))


def _ends(shards: Sequence[Shard]) -> list[int]:
    """Where in a vector of shards each but the last ends."""
    return list(accumulate(shard.array.size for shard in shards))[:-1]


def shard_buckets(shards: Sequence[Shard], bucket_bytes: int) -> list[list[Shard]]:
    """Shards whose parameters are communicated together, in their order.

    Those that other ranks divide too are apart, for their programs treat them as parts, and others as replicated."""
    by_id = {id(shard.array): shard for shard in shards}
    ranks = shards[0].group.ranks
    partition = buckets([s.array for s in shards], bucket_bytes, lambda x: by_id[id(x)].others, ranks)
    return [[by_id[id(x)] for x in bucket.arrays] for bucket in partition]
