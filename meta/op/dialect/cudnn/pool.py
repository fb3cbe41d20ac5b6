"""Pooling by the C API. It knows neither dilation, nor different padding on the two sides of an axis, nor windows that
end beyond the padding; windows of adaptive pooling must be alike."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.cudnn import library
from meta.backend.cudnn.descriptors import Descriptor, factor, pooling, tensor
from meta.backend.cudnn.handle import handles
from meta.backend.cudnn.kernel import Run, unfit
from meta.backend.memory import storage
from meta.ir.type import TensorType
from meta.op import window
from meta.op.dialect.cudnn import BELOW_TVM, DIALECT
from meta.op.dispatch import CallInfo
from meta.op.window import Windows

_INCLUDE: Final = 1
_EXCLUDE: Final = 2
_MAX: Final = 0
"""The order in which it adds the gradients of windows that share their maximum is not fixed, as in torch; the mode in
which it is takes three times as long. Either sends a gradient to the first of equal elements."""
_Ints = tuple[int, ...]


def _spatial(call: CallInfo) -> _Ints:
    """The spatial shape of the operator's input."""
    args = call.bind()
    return (args["x"].shape if "x" in args else args["shape"])[2:]


def _windows(call: CallInfo) -> tuple[Windows, ...]:
    args, spatial = call.bind(), _spatial(call)
    if "kernel" in args:
        given = (args[name] for name in ("kernel", "stride", "padding", "dilation", "ceil_mode"))
        return window.pool_windows(spatial, *given)
    small: TensorType = args["dy"] if "dy" in args else call.outputs()[0]
    return window.adaptive_pool_windows(spatial, tuple(map(int, small.shape[2:])))


def unsuited(call: CallInfo) -> str | None:
    """Why cuDNN's pooling is not what a call asks for."""
    reason = unfit(call)
    if reason:
        return reason
    for axis in _windows(call):
        if axis.adaptive:
            return f"{axis.size} elements do not divide into {axis.count} windows of one size"
        if axis.dilation != 1:
            return f"dilation {axis.dilation}: cuDNN pools neighbours only"
        if axis.before != axis.after:
            return f"padding of {axis.before} before and {axis.after} after: cuDNN pads both sides alike"
        room = axis.size + axis.before + axis.after - axis.kernel
        if axis.count != room // axis.stride + 1:
            return "ceil_mode keeps a window that ends beyond the padding: cuDNN drops it"
    return None


def _mode(call: CallInfo) -> int:
    if "max" in call.op.name:
        return _MAX
    return _INCLUDE if call.bind().get("count_include_pad") else _EXCLUDE


def _described(call: CallInfo, dtype: str, large: _Ints, small: _Ints) -> tuple[Descriptor, Descriptor, Descriptor]:
    """Descriptors of the pooling, of its input and of its result; one spatial axis becomes two."""
    axes = _windows(call)
    kernel, pad, stride = ([getattr(a, name) for a in axes] for name in ("kernel", "before", "stride"))
    if len(axes) == 1:
        kernel, pad, stride = [1, *kernel], [0, *pad], [1, *stride]
        large, small = (*large[:2], 1, *large[2:]), (*small[:2], 1, *small[2:])
    return pooling(_mode(call), kernel, pad, stride), tensor(dtype, large), tensor(dtype, small)


def _forward(call: CallInfo) -> Run:
    x, out = call.tensors()[0], call.outputs()[0]
    described = _described(call, x.dtype, x.shape, out.shape)  # type: ignore[arg-type]
    kind, large, small = (d.pointer for d in described)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current, pool = handles(call.device), library.functions().cudnnPoolingForward

    def run(x: Any, out: Any, _: Any = described) -> None:
        pool(current().pointer, kind, one, large, x.data_ptr(), zero, small, out.data_ptr())

    return run


def _backward_of_max(call: CallInfo) -> Run:
    """Its operator gets x alone, so that the result has to be found again."""
    x, dy = call.tensors()[:2]
    described = _described(call, x.dtype, x.shape, dy.shape)  # type: ignore[arg-type]
    kind, large, small = (d.pointer for d in described)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current, new = handles(call.device), storage.allocator(dy)
    pool, back = library.functions().cudnnPoolingForward, library.functions().cudnnPoolingBackward

    def run(x: Any, dy: Any, out: Any, _: Any = described) -> None:
        handle, at, pooled = current().pointer, x.data_ptr(), new()
        y = pooled.data_ptr()
        pool(handle, kind, one, large, at, zero, small, y)
        back(handle, kind, one, small, y, small, dy.data_ptr(), large, at, zero, large, out.data_ptr())

    return run


def _backward_of_mean(call: CallInfo) -> Run:
    dy, out = call.tensors()[0], call.outputs()[0]
    described = _described(call, dy.dtype, out.shape, dy.shape)  # type: ignore[arg-type]
    kind, large, small = (d.pointer for d in described)
    one, zero = factor(1.0, dy.dtype), factor(0.0, dy.dtype)
    current, back = handles(call.device), library.functions().cudnnPoolingBackward

    def run(dy: Any, out: Any, _: Any = described) -> None:
        # Of x and y only the shapes are read: any memory that holds as much does.
        grad, result = dy.data_ptr(), out.data_ptr()
        back(current().pointer, kind, one, small, grad, small, grad, large, result, zero, large, result)

    return run


for _rank in (1, 2, 3):
    for _prefix in ("", "adaptive_"):
        _plevel = BELOW_TVM if not _prefix and _rank == 1 else DIALECT.plevel
        DIALECT.implement(f"{_prefix}max_pool{_rank}d", _forward, plevel=_plevel, accepts=unsuited)
        _plevel = BELOW_TVM if _prefix or _rank != 2 else DIALECT.plevel
        DIALECT.implement(f"{_prefix}max_pool{_rank}d_dx", _backward_of_max, plevel=_plevel, accepts=unsuited)
        DIALECT.implement(f"{_prefix}avg_pool{_rank}d", _forward, plevel=BELOW_TVM, accepts=unsuited)
        DIALECT.implement(f"{_prefix}avg_pool{_rank}d_dx", _backward_of_mean, plevel=BELOW_TVM, accepts=unsuited)
