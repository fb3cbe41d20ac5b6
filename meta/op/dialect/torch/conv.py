"""Convolutions by ATen. It takes symmetric padding only; otherwise x is padded first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import torch

from meta._generated import limits
from meta.backend.memory import constants
from meta.backend.torch.bridge import Specialised
from meta.dtype import HALVES, is_float
from meta.ir.expr import CallInfo
from meta.op import windows
from meta.op.dialect.torch import DIALECT

_Ints = tuple[int, ...]
_aten = torch.ops.aten
_onednn = torch.ops.mkldnn


def _pad_asymmetric(x: Any, padding: _Ints) -> tuple[Any, list[int], tuple[tuple[int, int], ...]]:
    """x, padded here if the padding is asymmetric; the padding for ATen; and the pads (before, after) of each axis."""
    rank = x.ndim - 2
    pads = windows.pads(padding, rank)
    if windows.symmetric(pads):
        return x, [before for before, _ in pads], pads
    flat = [p for pair in reversed(pads) for p in pair]
    return torch.constant_pad_nd(x, flat), [0] * rank, pads


def _channels_first(channels_last: bool, *tensors: Any) -> Iterable[Any]:
    """Views of the tensors as (batch, channels, *spatial)."""
    return (x.movedim(-1, 1) for x in tensors) if channels_last else tensors


def conv(
    x: Any, w: Any, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *, out: Any
) -> None:
    x, w, out = _channels_first(channels_last, x, w, out)
    data, pad, _ = _pad_asymmetric(x, padding)
    # Variants with `out` of torch.ops copy the result too, and parse their arguments in Python.
    out.copy_(torch.convolution(data, w, None, stride, pad, dilation, False, [0] * len(pad), groups))


def _conv2d(call: CallInfo) -> Callable[..., Any]:
    """conv2d, by kernels that are packed once where they are constants."""
    attributes = call.args[2:]

    def run(x: Any, w: Any, out: Any) -> None:
        conv(x, w, *attributes, out=out)

    if _without_packing(call) is not None:
        return run
    packed = _conv2d_packed(call)
    return lambda x, w, out: (packed if constants.is_held(w.data_ptr()) else run)(x, w, out)


def _conv2d_packed(call: CallInfo) -> Callable[..., Any]:
    """conv2d or conv2d_epilogue by oneDNN, with channels last; constant kernels are packed once."""
    first = (0, 3, 1, 2)  # Axes of a view with channels second.
    args = call.bind()
    steps, pads, spread = windows.attributes(2, args["stride"], args["padding"], args["dilation"])
    is_symmetric = windows.symmetric(pads)
    around = [p for pair in reversed(pads) for p in pair]
    window = ([before if is_symmetric else 0 for before, _ in pads], list(steps), list(spread), args["groups"])
    has_bias, has_other, has_relu = args.get("bias") is not None, args.get("other") is not None, args.get("relu")
    key = ("onednn", repr((args["x"].shape, args["w"].shape, pads, window)))
    pointwise, binary = _onednn._convolution_pointwise.default, _onednn._convolution_pointwise.binary

    def run(x: Any, w: Any, *rest: Any) -> None:
        data = x.permute(first) if is_symmetric else torch.constant_pad_nd(x.permute(first), around)
        kernel = w.permute(first)

        def pack() -> Any:
            return _onednn._reorder_convolution_weight(kernel, *window, list(data.shape))

        packed = constants.derive(w.data_ptr(), key, pack)
        kernel = kernel if packed is None else packed
        bias = rest[0] if has_bias else None
        if has_other:
            y = binary(data, rest[-2].permute(first), kernel, bias, *window, "add", 1.0, None, [], "")
        else:
            y = pointwise(data, kernel, bias, *window, "none", [], "")
        out = rest[-1].permute(first)
        if has_relu:  # oneDNN's own drops NaN
            torch.clamp_min(y, 0, out=out)
        else:
            out.copy_(y)

    return run


def _without_packing(call: CallInfo) -> str | None:
    """Why oneDNN does not run a convolution from ATen with a bias, a sum and a kernel that is packed ahead."""
    x, channels_last = call.tensors()[0], call.args[-1]
    if x.dtype != "float32" or call.device.kind != "cpu" or not channels_last or not x.is_static or x.ndim != 4:
        return "ATen packs kernels of float32 convolutions of static sizes with channels last on CPUs"
    return None if torch.backends.mkldnn.is_available() else "this build of torch is without oneDNN"


def _backward(
    dy: Any, x: Any, w: Any, stride: _Ints, pad: list[int], dilation: _Ints, groups: int, mask: list[bool]
) -> Any:
    return _aten.convolution_backward(dy, x, w, None, stride, pad, dilation, False, [0] * len(pad), groups, mask)


def conv_dx(
    w: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *,
    out: Any,
) -> None:  # fmt: skip
    w, dy, out = _channels_first(channels_last, w, dy, out)
    # ATen reads only the shape of x, which equals the shape of `out`.
    x, pad, pads = _pad_asymmetric(out, padding)
    dx = _backward(dy, x, w, stride, pad, dilation, groups, [True, False, False])[0]
    if not windows.symmetric(pads):
        dx = dx[(..., *(slice(before, before + d) for (before, _), d in zip(pads, out.shape[2:], strict=True)))]
    out.copy_(dx)


def conv_dw(
    x: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *,
    out: Any,
) -> None:  # fmt: skip
    x, dy, out = _channels_first(channels_last, x, dy, out)
    data, pad, _ = _pad_asymmetric(x, padding)
    out.copy_(_backward(dy, data, out, stride, pad, dilation, groups, [False, True, False])[1])


def conv_transpose(
    x: Any, w: Any, stride: _Ints, padding: _Ints, output_padding: _Ints, dilation: _Ints, groups: int, *, out: Any
) -> None:
    conv_dx(w, x, tuple(out.shape), stride, padding, dilation, groups, False, out=out)


def _unsupported(call: CallInfo) -> str | None:
    dtype = call.tensors()[0].dtype
    return None if is_float(dtype) else f"ATen convolves floats, not {dtype}"


def _prefers_channels_last(call: CallInfo) -> bool:
    """Whether oneDNN or cuDNN computes with channels last: oneDNN's results of other operands have blocks of channels,
    which ATen converts."""
    dtype = call.tensors()[0].dtype
    return dtype == "float32" if call.device.kind == "cpu" else dtype in HALVES


def _prefers_channels_last_forward(call: CallInfo) -> bool:
    """The same for convolutions. With channels last, oneDNN adds all terms of a sum one after the other, so that its
    error grows with their number: at 4,608 terms it is ten times the error of other layouts. Kernels of images without
    groups may be packed for TVM's kernels, which add long sums in blocks."""
    if call.device.kind != "cpu":
        return _prefers_channels_last(call)
    _, w = call.tensors()[:2]
    is_packed = w.ndim == 4 and call.bind()["groups"] == 1
    is_short = w.is_static and prod(map(int, w.shape[1:])) <= limits.CONTRACTION_BLOCK
    return _prefers_channels_last(call) and (is_packed or is_short)


DIALECT.implement("conv2d_epilogue", Specialised(_conv2d_packed), accepts=_without_packing)
for _rank in (1, 2, 3):
    forward: Any = Specialised(_conv2d) if _rank == 2 else conv
    DIALECT.implement(f"conv{_rank}d", forward, accepts=_unsupported,
                      prefers_channels_last=_prefers_channels_last_forward)  # fmt: skip
    DIALECT.implement(f"conv{_rank}d_dx", conv_dx, accepts=_unsupported, prefers_channels_last=_prefers_channels_last)
    DIALECT.implement(f"conv{_rank}d_dw", conv_dw, accepts=_unsupported, prefers_channels_last=_prefers_channels_last)
    DIALECT.implement(f"conv{_rank}d_transpose", conv_transpose, accepts=_unsupported)
