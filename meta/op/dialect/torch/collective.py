"""Collectives by torch.distributed: gloo on the CPU, NCCL on CUDA. With one rank nothing is communicated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta.backend.torch.groups import Group, find_group
from meta.op.dialect.torch import DIALECT


def _widened(x: Any) -> Any:
    """A contiguous copy or view of a tensor in a dtype that every backend reduces, complex numbers as pairs."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj()).contiguous()
    wide = {torch.bool: torch.uint8, torch.int16: torch.int32, torch.uint16: torch.int32}.get(x.dtype, x.dtype)
    return x.to(wide).contiguous()


def _narrowed(wide: Any, out: Any) -> Any:
    """The inverse of `_widened`, for a result of the dtype of `out`."""
    return torch.view_as_complex(wide) if out.is_complex() else wide


def _bytes(x: Any) -> Any:
    """A contiguous copy or view of a tensor in a dtype that every backend moves, of the same first axes."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj()).contiguous()
    x = x.contiguous()
    return x.view({1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _from_bytes(moved: Any, out: Any) -> Any:
    return torch.view_as_complex(moved) if out.is_complex() else moved.view(out.dtype)


def _communicate(name: str, group: str, ranks: int, x: Any, out: Any, run: Callable[[Group], Any]) -> None:
    """Write the result of `run(group)` to `out`; x itself if there is one rank, and nothing if there is no element."""
    if ranks == 1:
        out.copy_(x)
        return
    members = find_group(name, group, ranks)
    if x.numel():
        with members.reporting(name):
            out.copy_(run(members))


def all_reduce(x: Any, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        total = _widened(x).clone()
        members.all_reduce(total, reduction)
        return _narrowed(total, out)

    _communicate("all_reduce", group, ranks, x, out, run)


def all_gather(x: Any, axis: int, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        parts = _from_bytes(members.all_gather(_bytes(x)), out)
        return torch.cat(parts.unbind(0), axis)

    _communicate("all_gather", group, ranks, x, out, run)


def reduce_scatter(x: Any, axis: int, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        parts = _widened(torch.stack(x.chunk(ranks, axis)))
        return _narrowed(members.reduce_scatter(parts, reduction), out)

    _communicate("reduce_scatter", group, ranks, x, out, run)


def broadcast_from(x: Any, source: int, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        sent = _bytes(x).clone()
        members.broadcast(sent, source)
        return _from_bytes(sent, out)

    _communicate("broadcast_from", group, ranks, x, out, run)


def reduce_to(x: Any, destination: int, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        total = _widened(x).clone()
        members.reduce(total, destination, reduction)
        return _narrowed(total, out) if members.rank == destination else torch.zeros_like(out)

    _communicate("reduce_to", group, ranks, x, out, run)


def all_to_all(x: Any, split_axis: int, concat_axis: int, group: str, ranks: int, *, out: Any) -> None:
    def run(members: Group) -> Any:
        parts = _bytes(torch.stack(x.chunk(ranks, split_axis)))
        return torch.cat(_from_bytes(members.all_to_all(parts), out).unbind(0), concat_axis)

    _communicate("all_to_all", group, ranks, x, out, run)


def send_receive(x: Any, pairs: tuple[int, ...], group: str, ranks: int, *, out: Any) -> None:
    if ranks == 1 and not pairs:
        out.zero_()
        return

    def run(members: Group) -> Any:
        received = members.send_receive(_bytes(x), dict(zip(pairs[::2], pairs[1::2], strict=True)))
        return torch.zeros_like(out) if received is None else _from_bytes(received, out)

    _communicate("send_receive", group, ranks, x, out, run)


def barrier(x: Any, group: str, ranks: int, *, out: Any) -> None:
    if ranks > 1:
        members = find_group("barrier", group, ranks)
        with members.reporting("barrier"):
            members.barrier()
    out.copy_(x)


def group_rank(group: str, ranks: int, device: Any, *, out: Any) -> None:
    out.fill_(find_group("group_rank", group, ranks).rank if ranks > 1 else 0)


for _function in (
    all_reduce, all_gather, reduce_scatter, broadcast_from, reduce_to, all_to_all, send_receive, barrier, group_rank,
):  # fmt: skip
    DIALECT.implement(_function.__name__, _function, complex=_function is not group_rank)
