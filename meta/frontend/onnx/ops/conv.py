"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend._by_rank import CONV, CONV_TRANSPOSE
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import row_shape
from meta.frontend.onnx.ops._windows import Window, padded, window_of
from meta.frontend.onnx.ops.matrix import shifted


def spatial_rank(node: Node, x: Tensor, most: int = 3) -> int:
    rank = x.ndim - 2
    if not 1 <= rank <= most:
        refuse(node, f"an input of {x.ndim} axes", f"3 to {most + 2}")
    return rank


def biased(y: Any, bias: Any) -> Any:
    return y if bias is None else meta.bias_add(y, bias, 1)


def convolved(node: Node, x: Tensor, w: Tensor, window: Window, group: int) -> Any:
    if any(p < 0 for p in window.padding):
        x, window = padded(x, window.pads), replace(window, pads=((0, 0),) * window.rank)
    function = CONV[spatial_rank(node, x)]
    return function(x, w, window.strides, window.padding, window.dilations, group)


@row("Conv")
def conv(
    node: Node, X: Any, W: Any, B: Any = None, *, kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    _check_kernel("Conv", kernel_shape, W)
    window = window_of("Conv", X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad)
    return biased(convolved(node, X, W, window, group), B)


def _check_kernel(op: str, kernel_shape: Any, w: Tensor) -> None:
    if kernel_shape and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise TypeInferenceError(op, f"kernel_shape is {tuple(kernel_shape)} for weights of shape {w.shape}",
                                 f"{tuple(w.shape[2:])}")  # fmt: skip


# --- transposed ------------------------------------------------------------------------------------------------------


def _transposed_pads(
    x: Tensor, window: Window, extra: tuple[int, ...], shape: Any, auto_pad: str
) -> tuple[tuple[int, int], ...]:
    """The elements cut off the full result at both ends: pads, or those beyond an output shape."""
    full = [s * (n - 1) + e for s, n, e in zip(window.strides, x.shape[2:], window.extents, strict=True)]
    if shape:
        spatial = list(shape)[-window.rank :]
        totals = [f + o - n for f, o, n in zip(full, extra, spatial, strict=True)]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [e - s + o for e, s, o in zip(window.extents, window.strides, extra, strict=True)]
    else:
        return window.pads
    halves = [(t // 2, t - t // 2) for t in totals]
    return tuple(halves if auto_pad == "SAME_UPPER" else [(b, a) for a, b in halves])


@row("ConvTranspose")
def conv_transpose(
    node: Node, X: Any, W: Any, B: Any = None, *, kernel_shape: Any = None, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", group: int = 1, output_padding: Any = None, output_shape: Any = None,
) -> Any:  # fmt: skip
    _check_kernel("ConvTranspose", kernel_shape, W)
    rank = spatial_rank(node, X)
    plain = "NOTSET" if auto_pad.startswith("SAME") else auto_pad
    window = window_of("ConvTranspose", X.shape[2:], W.shape[2:], strides, dilations, pads, plain)
    extra = tuple(output_padding or (0,) * rank)
    cut = _transposed_pads(X, window, extra, output_shape, auto_pad)
    function = CONV_TRANSPOSE[rank]
    steps, spread = window.strides, window.dilations
    fits = all(o < max(s, d) for o, s, d in zip(extra, steps, spread, strict=True))
    if fits and all(p >= 0 for pair in cut for p in pair):
        padding = (*(a for a, _ in cut), *(b for _, b in cut))
        return biased(function(X, W, steps, padding, extra, spread, group), B)
    full = function(X, W, steps, (0,) * rank, (0,) * rank, spread, group)
    ends = [(-a, o - b) for (a, b), o in zip(cut, extra, strict=True)]
    return biased(padded(full, ends), B)


# --- integers --------------------------------------------------------------------------------------------------------


@row("ConvInteger", since=10)
def conv_integer(
    node: Node, x: Tensor, w: Tensor, x_zero_point: Tensor | None = None, w_zero_point: Tensor | None = None, *,
    kernel_shape: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, auto_pad: str = "NOTSET", group: int = 1,
) -> Any:  # fmt: skip
    """Zero points of the weights belong to all of them or to one output channel each. Pads are the zero point."""
    _check_kernel("ConvInteger", kernel_shape, w)
    window = window_of("ConvInteger", x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return convolved(node, shifted(x, x_zero_point), shifted(w, along_first(w_zero_point, w)), window, group)


def along_first(value: Any, w: Tensor) -> Any:
    """A number for each output channel, shaped to broadcast with the weights."""
    if value is None or value.ndim == 0 or value.shape[0] == 1:
        return value if value is None else meta.reshape(value, ())
    return meta.reshape(value, row_shape(value.shape[0], 0, w.ndim))


# --- with offsets ----------------------------------------------------------------------------------------------------


@row("CausalConvWithState", since=27)
def causal_conv_with_state(
    node: Node, input: Any, weight: Any, bias: Any = None, past_state: Tensor | None = None, *, activation: str = "none"
) -> Any:  # fmt: skip
    if activation not in ("none", "silu", "swish"):
        raise TypeInferenceError(node.op_type, f"activation is {activation!r}", "none, silu or swish")
    return NotImplemented
