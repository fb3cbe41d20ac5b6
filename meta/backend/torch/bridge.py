"""Kernels from functions on torch tensors.

A payload is `function(*args in schema order, *, out)`: it receives torch tensors that share memory with the operands
and writes its results into `out` (a torch tensor, or a tuple of them). A `Specialised` payload returns, once per call
type, `function(*inputs, *outputs)` with the other arguments fixed.

A view of a tensor costs 0.6 us (torch.from_dlpack takes 1.6: it looks up devices and streams, which happens here once
per kernel), so other dialects run tiny problems. Torch records no gradients, because views do not require them.
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
from meta.errors import KernelError, MetaError, raised
from meta.ir.type import flat_types

if TYPE_CHECKING:
    from meta.op.dispatch import CallInfo

Kernel = Callable[..., Any]

_view: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", from_dlpack)
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""Torch's stream on a GPU, as a handle."""


@dataclass(frozen=True, slots=True)
class Specialised:
    """A payload that builds a function for the arguments of a call."""

    build: Callable[[CallInfo], Callable[..., Any]]


def kernel(payload: Any, call: CallInfo) -> Kernel:
    """The payload as `kernel(*inputs, *outputs)` on raw tensors."""
    function = payload.build(call) if isinstance(payload, Specialised) else _bind_attributes(payload, call)
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
    """`run` on the current stream of this thread's kernels."""
    torch_device, index = torch.device(device.kind, device.index), device.index
    current_stream, torch_stream = streams.stream_getter(device), _current_stream

    def on_stream(*raw: Any) -> None:
        stream = current_stream()
        if stream == torch_stream(index):
            return run(*raw)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, torch_device)):
            return run(*raw)

    return on_stream


def _bind_attributes(payload: Callable[..., None], call: CallInfo) -> Callable[..., Any]:
    """The payload as a function of the inputs and outputs, with the attributes of the call fixed."""
    counts = [len(flat_types((arg,))) if isinstance(arg, tuple) else int(bool(flat_types((arg,)))) for arg in call.args]
    arguments, input_count, single = call.args, sum(counts), len(call.outputs()) == 1

    def function(*tensors: Any) -> None:
        inputs = iter(tensors)
        args = [_take_inputs(arg, count, inputs) for arg, count in zip(arguments, counts, strict=True)]
        try:
            payload(*args, out=tensors[input_count] if single else tensors[input_count:])
        except MetaError:
            raise
        except Exception as error:
            raise raised(KernelError, call.op.name, "its torch implementation", error) from error

    return function


def _take_inputs(arg: Any, count: int, inputs: Any) -> Any:
    """The next `count` inputs for an argument of tensors; any other argument itself."""
    if not count:
        return arg
    return [next(inputs) for _ in range(count)] if isinstance(arg, tuple) else next(inputs)


def private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    """A function that opens a scope in which torch allocates from a new private pool."""
    pool = torch.cuda.MemPool()
    torch_device = torch.device(on.kind, on.index)
    return lambda: torch.cuda.use_mem_pool(pool, torch_device)
