"""Kernels from functions on torch tensors.

A payload is `function(*args in schema order, *, out)`: it gets torch tensors that share memory with the operands and
writes its results into `out` (a torch tensor, or a tuple of them). A payload that is a `Maker` is asked once a call
type for `function(*inputs, *outputs)`, with everything but the tensors already decided.

A view of a tensor costs 0.6 us (torch.from_dlpack would take 1.6: it asks for devices and streams, which is done here
once a kernel), so tiny problems belong to other dialects. Nothing is recorded: views require no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from meta.backend.cuda import streams
from meta.device import Device
from meta.ir.type import flat_types

if TYPE_CHECKING:
    from meta.op.dispatch import CallInfo

Kernel = Callable[..., Any]

_view: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", from_dlpack)
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""Torch's stream of a GPU, without an object made for it."""


@dataclass(frozen=True, slots=True)
class Maker:
    """A payload that makes a function for the arguments of a call."""

    make: Callable[[CallInfo], Callable[..., Any]]


def kernel(payload: Any, call: CallInfo) -> Kernel:
    """The payload as `kernel(*inputs, *outputs)` on raw tensors."""
    function = payload.make(call) if isinstance(payload, Maker) else _bound(payload, call)
    run = _on_views(function, len(call.tensors()) + len(call.outputs()))
    return _on_stream(run, call.device) if call.device.kind == "cuda" else run


def _on_views(function: Callable[..., Any], count: int) -> Kernel:
    """`function` on views of `count` raw tensors."""
    view = _view
    if count == 2:
        return lambda x, out: function(view(x.__dlpack__()), view(out.__dlpack__()))
    if count == 3:
        return lambda x, y, out: function(view(x.__dlpack__()), view(y.__dlpack__()), view(out.__dlpack__()))
    return lambda *raw: function(*[view(x.__dlpack__()) for x in raw])


def _on_stream(run: Kernel, device: Device) -> Kernel:
    """`run` on the stream that the other kernels of this thread use."""
    where, index = torch.device(device.kind, device.index), device.index
    ours, theirs = streams.stream_getter(device), _current_stream

    def on_stream(*raw: Any) -> None:
        stream = ours()
        if stream == theirs(index):
            return run(*raw)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, where)):
            return run(*raw)

    return on_stream


def _bound(payload: Callable[..., None], call: CallInfo) -> Callable[..., Any]:
    """The payload as a function of inputs and outputs alone."""
    counts = [len(flat_types((arg,))) if isinstance(arg, tuple) else int(bool(flat_types((arg,)))) for arg in call.args]
    attributes = call.args
    count, single = sum(counts), len(call.outputs()) == 1

    def function(*tensors: Any) -> None:
        inputs = iter(tensors)
        args = [_fill(a, n, inputs) for a, n in zip(attributes, counts, strict=True)]
        payload(*args, out=tensors[count] if single else tensors[count:])

    return function


def _fill(arg: Any, count: int, inputs: Any) -> Any:
    if not count:
        return arg
    return [next(inputs) for _ in range(count)] if isinstance(arg, tuple) else next(inputs)


def private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    """A maker of scopes in which torch allocates from a pool of its own, on the stream that our kernels use."""
    pool = torch.cuda.MemPool()
    where = torch.device(on.kind, on.index)
    return lambda: torch.cuda.use_mem_pool(pool, where)
