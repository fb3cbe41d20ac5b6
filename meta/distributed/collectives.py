"""Collectives on arrays and traced values. All ranks of a group call them in one order, with tensors of one type.

`group` is an axis of a mesh (`mesh["dp"]`), or None for all processes. All are differentiable, to any order; the
gradient on a rank is the gradient of the sum of all ranks' losses. In a single process they are the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import meta
from meta.distributed.mesh import GroupLike, as_group
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.modes import modes

Mean: TypeAlias = Literal["sum", "mean"]
Reduction: TypeAlias = Literal["sum", "mean", "max", "min", "product"]


def all_reduce(x: NDArray, reduction: Reduction = "sum", group: GroupLike = None) -> NDArray:
    """The reduction of the ranks' tensors, on every rank.

    reduction: "sum", "mean", "max", "min" or "product"; equal maxima share the gradient."""
    return meta.all_reduce(x, reduction, *as_group("all_reduce", group))


def all_gather(x: NDArray, axis: int = 0, group: GroupLike = None) -> NDArray:
    """The tensors of all ranks concatenated along an axis, on every rank."""
    return meta.all_gather(x, axis, *as_group("all_gather", group))


def reduce_scatter(x: NDArray, axis: int = 0, reduction: Mean = "sum", group: GroupLike = None) -> NDArray:
    """This rank's part, along an axis, of the sum or mean of the ranks' tensors."""
    return meta.reduce_scatter(x, axis, reduction, *as_group("reduce_scatter", group))


def broadcast(x: NDArray, source: int = 0, group: GroupLike = None) -> NDArray:
    """The tensor of one rank of the group, on every rank."""
    return meta.broadcast_from(x, source, *as_group("broadcast", group))


def reduce(x: NDArray, destination: int = 0, reduction: Mean = "sum", group: GroupLike = None) -> NDArray:
    """The sum or mean of the ranks' tensors on one rank, zeros on the others."""
    return meta.reduce_to(x, destination, reduction, *as_group("reduce", group))


def all_to_all(x: NDArray, split_axis: int = 0, concat_axis: int = 0, group: GroupLike = None) -> NDArray:
    """Part i of every rank's tensor, divided along `split_axis`, on rank i, concatenated along `concat_axis`."""
    return meta.all_to_all(x, split_axis, concat_axis, *as_group("all_to_all", group))


def permute(x: NDArray, pairs: Sequence[Sequence[int]], group: GroupLike = None) -> NDArray:
    """The tensor that another rank sends; zeros where none does.

    pairs: (sender, receiver); a rank sends and receives at most once."""
    return meta.send_receive(x, pairs, *as_group("permute", group))


def barrier(x: NDArray | None = None, group: GroupLike = None) -> Any:
    """Wait until all ranks have come here. With x the result is x, so that a program waits at this point."""
    name, ranks = as_group("barrier", group)
    if x is not None:
        return meta.barrier(x, name, ranks)
    if modes.trace is not None:
        problem = "a barrier without a tensor in a traced function"
        raise ArgumentError("barrier", problem, "a tensor that it delays", "write x = barrier(x)")
    meta.barrier(meta.zeros(()), name, ranks)
    return None
