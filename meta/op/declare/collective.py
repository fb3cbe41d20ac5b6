"""Declarations of collectives: operators that every rank of a group calls together.

Types depend only on the number of ranks, so that programs are traced, typed and planned without other processes. With
one rank a collective is the identity, and programs drop it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from meta import dtype as dtypes
from meta.device import Device
from meta.dim import Dim
from meta.ir.type import TensorType, tensor_type
from meta.op import registry, rules
from meta.schema import collective

NO_COMPUTE = "it communicates between processes, which torch.distributed does"
declare: Any = partial(registry.declare, amp="keep", no_compute=NO_COMPUTE)


def _check_ranks(ranks: int, **members: int) -> None:
    """Raise TypeInferenceError for a number of ranks below 1 and for ranks outside of the group."""
    rules.require(ranks >= 1, f"ranks is {ranks}", "1 or more")
    for name, rank in members.items():
        rules.require(0 <= rank < ranks, f"{name} is {rank} in a group of {ranks}", f"0 to {ranks - 1}")


def _check_reduction(x: TensorType, reduction: str) -> None:
    """Raise TypeInferenceError for reductions that the dtype of `x` does not have."""
    if reduction in ("sum", "mean", "product"):
        rules.require_number("x", x)
    if reduction == "mean":
        rules.require_inexact("x", x)
    if reduction in ("max", "min"):
        rules.require(not dtypes.is_complex(x.dtype), f"'x' has dtype {x.dtype}", "a real dtype for max and min")


def _part(x: TensorType, axis: int, ranks: int, name: str = "axis") -> Dim:
    """The size of one of `ranks` equal parts of an axis."""
    size = x.shape[axis]
    rules.require(
        not isinstance(size, int) or size % ranks == 0,
        f"axis {axis} of x has size {size}, which {ranks} ranks do not divide",
        f"a multiple of {ranks}",
        f"pad x, or choose another {name}",
    )
    return size // ranks


def _axis(x: TensorType, axis: int) -> int:
    axis = rules.axis_index(axis, x.ndim)
    rules.require(x.ndim > 0, "the tensor is 0-d", "at least one axis", "use x.expand_dims(0)")
    return axis


@declare("all_reduce", schema=collective.all_reduce, complex="as_is")
def all_reduce(x: TensorType, reduction: str, group: str, ranks: int) -> TensorType:
    """The sum, mean, maximum, minimum or product of the ranks' tensors, on every rank."""
    _check_ranks(ranks)
    _check_reduction(x, reduction)
    return x


@declare("all_reduce_when", schema=collective.all_reduce_when, complex="as_is")
def all_reduce_when(x: TensorType, when: TensorType, reduction: str, group: str, ranks: int) -> TensorType:
    """The sum or mean of the ranks' tensors where a condition holds, else this rank's tensor."""
    _check_ranks(ranks)
    _check_reduction(x, reduction)
    problem = f"'when' has dtype {when.dtype} and shape {when.shape}"
    rules.require(when.dtype == "bool" and when.ndim == 0, problem, "a 0-d bool tensor")
    return x


@declare("all_gather", schema=collective.all_gather, complex="as_is")
def all_gather(x: TensorType, axis: int, group: str, ranks: int) -> TensorType:
    """The tensors of all ranks concatenated along an axis in the order of the ranks, on every rank."""
    _check_ranks(ranks)
    axis = _axis(x, axis)
    return x.with_size(axis, x.shape[axis] * ranks)


@declare("reduce_scatter", schema=collective.reduce_scatter, complex="as_is")
def reduce_scatter(x: TensorType, axis: int, reduction: str, group: str, ranks: int) -> TensorType:
    """This rank's part of the sum or mean of the ranks' tensors, which is divided along an axis."""
    _check_ranks(ranks)
    _check_reduction(x, reduction)
    axis = _axis(x, axis)
    return x.with_size(axis, _part(x, axis, ranks))


@declare("broadcast_from", schema=collective.broadcast_from, complex="as_is")
def broadcast_from(x: TensorType, source: int, group: str, ranks: int) -> TensorType:
    """The tensor of one rank, on every rank."""
    _check_ranks(ranks, source=source)
    return x


@declare("reduce_to", schema=collective.reduce_to, complex="as_is")
def reduce_to(x: TensorType, destination: int, reduction: str, group: str, ranks: int) -> TensorType:
    """The sum or mean of the ranks' tensors on one rank, zeros on the others."""
    _check_ranks(ranks, destination=destination)
    _check_reduction(x, reduction)
    return x


@declare("all_to_all", schema=collective.all_to_all, complex="as_is")
def all_to_all(x: TensorType, split_axis: int, concat_axis: int, group: str, ranks: int) -> TensorType:
    """Part i of every rank's tensor, divided along `split_axis`, on rank i, concatenated along `concat_axis`."""
    _check_ranks(ranks)
    split, concat = _axis(x, split_axis), _axis(x, concat_axis)
    part = x.with_size(split, _part(x, split, ranks, "split_axis"))
    return part.with_size(concat, part.shape[concat] * ranks)


@declare("send_receive", schema=collective.send_receive, complex="as_is")
def send_receive(x: TensorType, pairs: tuple[int, ...], group: str, ranks: int) -> TensorType:
    """The tensor that another rank sent; zeros where none did."""
    _check_ranks(ranks)
    for name, members in (("sends", pairs[::2]), ("receives", pairs[1::2])):
        for rank in members:
            rules.require(0 <= rank < ranks, f"pair with rank {rank} in a group of {ranks}", f"0 to {ranks - 1}")
            rules.require(members.count(rank) == 1, f"rank {rank} {name} {members.count(rank)} times", "at most once")
    return x


@declare("barrier", schema=collective.barrier, complex="as_is")
def barrier(x: TensorType, group: str, ranks: int) -> TensorType:
    """x, after all ranks have come to this call."""
    _check_ranks(ranks)
    return x


@declare("group_rank", schema=collective.group_rank)
def group_rank(group: str, ranks: int, device: Device) -> TensorType:
    """The number of this rank in the group, a 0-d int64 tensor. Programs of all ranks are equal; this tells them
    apart at run time."""
    _check_ranks(ranks)
    return tensor_type((), "int64", device)
