"""Kernels from functions on torch tensors.

Payloads are as in meta.backend.functions, on torch tensors that share memory with the operands.

A view of a tensor costs 0.6 us (torch.from_dlpack takes 1.6: it looks up devices and streams, which happens here once
per kernel), so other dialects run tiny problems. Torch records no gradients, because views do not require them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from meta.backend.cuda import streams
from meta.backend.functions import Specialised as Specialised
from meta.backend.functions import bind
from meta.backend.tvm import launcher
from meta.device import Device
from meta.dtype import is_complex
from meta.records import record

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Kernel = Callable[..., Any]

launcher.follow_torch()

_view: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", from_dlpack)
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""Torch's stream on a GPU, as a handle."""


@record
class Native:
    """A payload with kernels on raw tensors that run without Python.

    build: the kernel for a call, None where there is none and `other` runs."""

    build: Callable[[CallInfo], Kernel | None]
    other: Specialised


def kernel(payload: Any, call: CallInfo) -> Kernel:
    """The payload as `kernel(*inputs, *outputs)` on raw tensors."""
    if isinstance(payload, Native):
        return (None if call.orders else payload.build(call)) or kernel(payload.other, call)
    is_built = isinstance(payload, Specialised)
    return on_torch(payload.build(call) if is_built else bind(payload, call, "its torch implementation"), call)


def on_torch(function: Callable[..., Any], call: CallInfo) -> Kernel:
    """`function(*inputs, *outputs)` on torch tensors as a kernel on raw tensors, on the current stream of a GPU.
    Operands with a layout and results in an order are views.

    The GPU need not be torch's current one, which ATen's kernels set themselves; see `on_device`."""
    types = (*call.tensors(), *call.outputs())
    if call.layouts or call.orders:
        function = _on_parts(function, call)
    if any(is_complex(t.dtype) for t in types):
        run = _on_complex_views(function, [is_complex(t.dtype) for t in types])
    else:
        run = _on_views(function, len(types))
    return _on_stream(run, call.device) if call.device.kind == "cuda" else run


def _on_parts(function: Callable[..., Any], call: CallInfo) -> Callable[..., Any]:
    """`function` on views of its arguments, by the layouts and orders of a call."""
    parts = [(i, each.shape, each.strides, each.offset) for i, each in enumerate(call.layouts) if each is not None]
    places = call.result_axes()

    def run(*tensors: torch.Tensor) -> Any:
        views = list(tensors)
        for i, shape, strides, offset in parts:
            views[i] = tensors[i].as_strided(shape, strides, offset)
        for i, axes in places:
            views[i] = tensors[i].permute(axes)
        return function(*views)

    return run


def _on_views(function: Callable[..., Any], count: int) -> Kernel:
    """`function` on views of `count` raw tensors."""
    view = _view

    def unary(x: Any, out: Any) -> Any:
        return function(view(x.__dlpack__()), view(out.__dlpack__()))

    def binary(x: Any, y: Any, out: Any) -> Any:
        return function(view(x.__dlpack__()), view(y.__dlpack__()), view(out.__dlpack__()))

    if count in (2, 3):
        return unary if count == 2 else binary
    return lambda *raw: function(*[view(x.__dlpack__()) for x in raw])


def _on_complex_views(function: Callable[..., Any], are_complex: list[bool]) -> Kernel:
    """`function` on views of raw tensors; pairs of floats become complex numbers."""
    view, as_complex = _view, torch.view_as_complex

    def run(*raw: Any) -> Any:
        views = [view(x.__dlpack__()) for x in raw]
        return function(*[as_complex(x) if c else x for x, c in zip(views, are_complex, strict=True)])

    return run


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


def on_device(run: Kernel, device: Device) -> Kernel:
    """`run` with a GPU as torch's current device, for functions that launch kernels of their own."""
    index, current = device.index, torch.cuda.current_device

    def guarded(*raw: Any) -> None:
        if current() == index:
            return run(*raw)
        with torch.cuda.device(index):
            return run(*raw)

    return guarded


def has_cuda() -> bool:
    """Whether torch can use a GPU."""
    return torch.cuda.is_available()


def cuda_version() -> str:
    """The version of CUDA that torch is built for, "" without."""
    return torch.version.cuda or ""


_retired: list[torch.cuda.MemPool] = []
"""Pools whose graphs are freed. Torch aborts the process if one is destroyed while it allocates from another, which the
garbage collector could do at any time; so they live until no scope is open."""
_open_scopes = [0]
_lock = threading.Lock()


def private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    """A function that opens a scope in which torch allocates from a new private pool."""
    with _lock:
        freed = [] if _open_scopes[0] else _retired[:]
        del _retired[: len(freed)]
    freed.clear()
    pool = torch.cuda.MemPool()
    torch_device = torch.device(on.kind, on.index)

    @contextmanager
    def scope() -> Generator[None, None, None]:
        with _lock:
            _open_scopes[0] += 1
        try:
            with torch.cuda.use_mem_pool(pool, torch_device):
                yield
        finally:
            with _lock:
                _open_scopes[0] -= 1

    weakref.finalize(scope, _retired.append, pool).atexit = False
    return scope
