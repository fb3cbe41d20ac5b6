"""Max pooling by the C API. It supports neither dilation, nor different padding on the two sides of an axis, nor
windows that end beyond the padding; windows of adaptive pooling must be of one size."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.cudnn import loader
from meta.backend.cudnn.descriptors import Descriptor, factor, pooling, tensor
from meta.backend.cudnn.handle import handle_getter
from meta.backend.cudnn.kernel import Run, unsupported_tensors
from meta.backend.windows import Windows
from meta.ir.expr import CallInfo
from meta.op import windows
from meta.op.dialect.cudnn import DIALECT

_MAX: Final = 0
_Ints = tuple[int, ...]


def _windows(call: CallInfo) -> tuple[Windows, ...]:
    args = call.bind()
    spatial = args["x"].shape[2:]
    if "kernel" in args:
        names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
        return windows.pool_windows(spatial, *(args[name] for name in names))
    return windows.adaptive_pool_windows(spatial, tuple(map(int, call.outputs()[0].shape[2:])))


def unsuited(call: CallInfo) -> str | None:
    """Why cuDNN's pooling does not support a call, or None."""
    reason = unsupported_tensors(call)
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


def _described(call: CallInfo, dtype: str, large: _Ints, small: _Ints) -> tuple[Descriptor, Descriptor, Descriptor]:
    """Descriptors of the pooling, of its input and of its result; one spatial axis becomes two."""
    axes = _windows(call)
    kernel, pad, stride = ([getattr(a, name) for a in axes] for name in ("kernel", "before", "stride"))
    if len(axes) == 1:
        kernel, pad, stride = [1, *kernel], [0, *pad], [1, *stride]
        large, small = (*large[:2], 1, *large[2:]), (*small[:2], 1, *small[2:])
    return pooling(_MAX, kernel, pad, stride), tensor(dtype, large), tensor(dtype, small)


def _forward(call: CallInfo) -> Run:
    x, out = call.tensors()[0], call.outputs()[0]
    described = _described(call, x.dtype, x.shape, out.shape)  # type: ignore[arg-type]
    kind, large, small = (d.pointer for d in described)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current, pool = handle_getter(call.device), loader.functions().cudnnPoolingForward

    def run(x: Any, out: Any, _: Any = described) -> None:
        pool(current().pointer, kind, one, large, x.data_ptr(), zero, small, out.data_ptr())

    return run


for _name in ("max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"):
    DIALECT.implement(_name, _forward, accepts=unsuited)
