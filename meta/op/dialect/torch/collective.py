"""Collectives by torch.distributed: gloo on the CPU, NCCL on CUDA. With one rank nothing is communicated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta.backend.torch.groups import ProcessGroup, find_group
from meta.backend.torch.transfers import Steps, communicate
from meta.op.dialect.torch import DIALECT
from meta.op.implementation import refuse_complex

_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
"""Dtypes that not every backend reduces, and what they are reduced in."""


def _reduced(x: Any) -> Any:
    """A tensor as one that backends reduce: complex numbers as pairs, truth values as bytes, uint64 as int64, whose
    sums have the same bits."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj())
    signed = {torch.bool: torch.uint8, torch.uint64: torch.int64}.get(x.dtype)
    return x if signed is None else x.view(signed)


def _operand(x: Any, out: Any) -> Any:
    """A contiguous copy of x that may be reduced in place: in the memory of `out` where that has a fitting dtype."""
    if x.dtype in _WIDER:
        return x.to(_WIDER[x.dtype], memory_format=torch.contiguous_format)
    target = _reduced(out)
    return (
        target.copy_(_reduced(x))
        if target.is_contiguous()
        else _reduced(x).clone(memory_format=torch.contiguous_format)
    )


def _write(reduced: Any, out: Any) -> None:
    """Copy a result of `_operand`'s form to `out`, unless it is there."""
    target = _reduced(out)
    if reduced.data_ptr() != target.data_ptr():
        target.copy_(reduced)


def _bytes(x: Any) -> Any:
    """A view of a tensor in a dtype that every backend moves, of the same first axes."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj())
    return x.view({1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}[x.element_size()])


_EQUAL_CALLS = "call the same collectives in one order on all ranks, with tensors of one type"


def _communicate(
    name: str, group: str, ranks: int, x: Any, out: Any, steps: Callable[[ProcessGroup], Steps], *attributes: Any
) -> None:
    """Run a collective of several ranks; nothing for a tensor without elements, and a copy of x with one rank."""
    if ranks == 1:
        out.copy_(x)
        return
    members = find_group(name, group, ranks)
    listed = "".join(f", {value}" for value in attributes)
    members.agree_on(name, "the call", f"{name}({str(x.dtype)[6:]}{list(x.shape)}{listed})", _EQUAL_CALLS)
    if x.numel():
        communicate(name, members, steps(members))


def all_reduce(x: Any, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        if x.is_complex() and reduction == "product":  # backends reduce the parts of complex numbers
            rows = x.new_empty((ranks, *x.shape))
            yield members.all_gather(_bytes(x.contiguous()), _bytes(rows))
            torch.prod(rows, 0, out=out)
            return
        total = _operand(x, out)
        if x.dtype == torch.uint64 and reduction in ("max", "min"):
            # With the first bit inverted, signed numbers have the order of unsigned ones.
            first = torch.iinfo(torch.int64).min
            total.bitwise_xor_(first)
            yield members.all_reduce(total, reduction)
            total.bitwise_xor_(first)
        else:
            yield members.all_reduce(total, reduction)
        members.divide(total, reduction)
        _write(total, out)

    _communicate("all_reduce", group, ranks, x, out, steps, reduction)


def all_reduce_when(x: Any, when: Any, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    """The processor decides: on a GPU it waits for the condition."""
    if when:
        all_reduce(x, reduction, group, ranks, out=out)
    else:
        out.copy_(x)


def all_gather(x: Any, axis: int, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        own, target = _bytes(x.contiguous()), _bytes(out)
        if axis in (0, -x.ndim) and target.is_contiguous():
            yield members.all_gather(own, target)
            return
        parts = own.new_empty((ranks, *own.shape))
        yield members.all_gather(own, parts)
        torch.cat(parts.unbind(0), axis % x.ndim, out=target)

    _communicate("all_gather", group, ranks, x, out, steps, axis)


def reduce_scatter(x: Any, axis: int, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        parts = _reduced(_stacked(x, ranks, axis))
        parts = parts.to(_WIDER.get(parts.dtype, parts.dtype)).contiguous()
        target = _reduced(out)
        fits = target.dtype == parts.dtype and target.is_contiguous()
        total = target if fits else torch.empty_like(parts[0])
        yield members.reduce_scatter(parts, total, reduction)
        members.divide(total, reduction)
        _write(total, out)

    _communicate("reduce_scatter", group, ranks, x, out, steps, axis, reduction)


def broadcast_from(x: Any, source: int, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        out.copy_(x)
        target = _bytes(out)
        sent = target if target.is_contiguous() else target.contiguous()
        yield members.broadcast(sent, source)
        if sent is not target:
            target.copy_(sent)

    _communicate("broadcast_from", group, ranks, x, out, steps, source)


def reduce_to(x: Any, destination: int, reduction: str, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        total = _operand(x, out)
        yield members.reduce(total, destination, reduction)
        if members.rank == destination:
            members.divide(total, reduction)
            _write(total, out)
        else:
            out.zero_()

    _communicate("reduce_to", group, ranks, x, out, steps, destination, reduction)


def all_to_all(x: Any, split_axis: int, concat_axis: int, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        parts = _bytes(_stacked(x, ranks, split_axis).contiguous())
        received = torch.empty_like(parts)
        yield members.all_to_all(parts, received)
        torch.cat(received.unbind(0), concat_axis % x.ndim, out=_bytes(out))

    _communicate("all_to_all", group, ranks, x, out, steps, split_axis, concat_axis)


def _stacked(x: Any, ranks: int, axis: int) -> Any:
    """The equal parts of a tensor along an axis, along a new first axis; a view for the first axis."""
    if axis in (0, -x.ndim):
        return x.contiguous().view(ranks, x.shape[0] // ranks, *x.shape[1:])
    return torch.stack(x.chunk(ranks, axis))


def send_receive(x: Any, pairs: tuple[int, ...], group: str, ranks: int, *, out: Any) -> None:
    if ranks == 1 and not pairs:
        out.zero_()
        return
    receivers = dict(zip(pairs[::2], pairs[1::2], strict=True))

    def steps(members: ProcessGroup) -> Steps:
        source = members.sender(receivers)
        if source == members.rank:
            out.copy_(x)
            return
        received = _bytes(out) if out.is_contiguous() else _bytes(torch.empty_like(x))
        if source is None:
            out.zero_()
        yield members.send_receive(_bytes(x.contiguous()), received, receivers)
        if source is not None and not out.is_contiguous():
            _bytes(out).copy_(received)

    _communicate("send_receive", group, ranks, x, out, steps, pairs)


def barrier(x: Any, group: str, ranks: int, *, out: Any) -> None:
    def steps(members: ProcessGroup) -> Steps:
        members.barrier()
        out.copy_(x)
        yield None

    if ranks > 1:
        members = find_group("barrier", group, ranks)
        members.agree_on("barrier", "the call", "barrier", _EQUAL_CALLS)
        communicate("barrier", members, steps(members))
    else:
        out.copy_(x)


def group_rank(group: str, ranks: int, device: Any, *, out: Any) -> None:
    out.fill_(find_group("group_rank", group, ranks).rank if ranks > 1 else 0)


for _function in (
    all_reduce, all_reduce_when, all_gather, reduce_scatter, broadcast_from, reduce_to, all_to_all, send_receive,
    barrier, group_rank,
):  # fmt: skip
    DIALECT.implement(_function.__name__, _function, accepts=refuse_complex if _function is group_rank else None)
