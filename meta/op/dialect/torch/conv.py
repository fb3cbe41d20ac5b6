"""Convolutions by ATen. It takes symmetric padding only; otherwise x is padded first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from meta.dtype import HALVES, is_float
from meta.op import windows
from meta.op.dialect.torch import DIALECT
from meta.op.dispatch import CallInfo

_Ints = tuple[int, ...]
_aten = torch.ops.aten


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
    _aten.convolution.out(data, w, None, stride, pad, dilation, False, [0] * len(pad), groups, out=out)


def _backward(
    dy: Any, x: Any, w: Any, stride: _Ints, pad: list[int], dilation: _Ints, groups: int, mask: list[bool]
) -> Any:
    return _aten.convolution_backward(dy, x, w, None, stride, pad, dilation, False, [0] * len(pad), groups, mask)


def conv_dx(
    w: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, *,
    out: Any,
) -> None:  # fmt: skip
    w, dy, out = _channels_first(channels_last, w, dy, out)
    # ATen reads only the shape of x, which is that of `out`.
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


for _rank in (1, 2, 3):
    DIALECT.implement(f"conv{_rank}d", conv, accepts=_unsupported, prefers_channels_last=_prefers_channels_last)
    DIALECT.implement(f"conv{_rank}d_dx", conv_dx, accepts=_unsupported, prefers_channels_last=_prefers_channels_last)
    DIALECT.implement(f"conv{_rank}d_dw", conv_dw, accepts=_unsupported, prefers_channels_last=_prefers_channels_last)
    DIALECT.implement(f"conv{_rank}d_transpose", conv_transpose, accepts=_unsupported)
