"""Products, convolutions, pools, normalisations and attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from meta import dtype as dtypes
from meta.frontend.onnx.export_ops._table import OnnxSite, row, rows
from meta.frontend.rows import Function
from meta.op import windows

_Ints = Sequence[int]


@row("matmul")
def matmul(call: OnnxSite, x1: str, x2: str, transpose_a: bool, transpose_b: bool) -> str | None:
    first, second = call.types
    if first.dtype != second.dtype or first.size == 0 or second.size == 0:
        return None
    a = _exchanged(call, x1, first.ndim) if transpose_a and first.ndim > 1 else x1
    b = _exchanged(call, x2, second.ndim) if transpose_b and second.ndim > 1 else x2
    if first.ndim < 3 or second.ndim > 1:
        return call.node("MatMul", a, b)
    # onnxruntime fuses the transpose of a batch before a product with a vector, and computes something else.
    column = call.node("MatMul", a, call.node("Unsqueeze", b, call.integers([1])))
    return call.node("Squeeze", column, call.integers([-1]))


def _exchanged(call: OnnxSite, x: str, ndim: int) -> str:
    return call.node("Transpose", x, perm=[*range(ndim - 2), ndim - 1, ndim - 2])


@row("dense")
def dense(call: OnnxSite, x: str, w: str, bias: str | None) -> str | None:
    if any(kind.size == 0 for kind in call.types):
        return None
    if call.types[0].ndim == 2 and dtypes.is_float(call.dtype):
        return call.node("Gemm", x, w, bias or "", transB=1)
    result = call.node("MatMul", x, _exchanged(call, w, 2))
    return result if bias is None else call.node("Add", result, bias)


rows({
    "log_softmax": lambda call, x, axis: call.node("LogSoftmax", x, axis=axis) if call.result.ndim else None,
    "softmax": lambda call, x, axis: call.node("Softmax", x, axis=axis) if call.result.ndim else None,
})  # fmt: skip


def _channels(call: OnnxSite, x: str, *, last: bool) -> str:
    """The tensor with its channels on the last axis, or moved from there to axis 1."""
    axes = list(range(call.result.ndim))
    moved = [0, *axes[2:], 1] if last else [0, axes[-1], *axes[1:-1]]
    return call.node("Transpose", x, perm=moved)


@row("conv1d", "conv2d", "conv3d")
def convolution(
    call: OnnxSite, x: str, w: str, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
) -> str | None:
    if not dtypes.is_float(call.dtype) or any(kind.size == 0 for kind in call.types):
        return None
    if channels_last:
        x, w = (_channels(call, value, last=False) for value in (x, w))
    result = call.node("Conv", x, w, group=groups, **_strides(call, stride, padding, dilation))
    return _channels(call, result, last=True) if channels_last else result


@row("conv1d_transpose", "conv2d_transpose", "conv3d_transpose")
def transposed_convolution(
    call: OnnxSite, x: str, w: str, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> str | None:
    if not dtypes.is_float(call.dtype):
        return None
    extra = list(windows.per_axis("output_padding", output_padding, call.result.ndim - 2, least=0))
    options = _strides(call, stride, padding, dilation)
    return call.node("ConvTranspose", x, w, output_padding=extra, group=groups, **options)


def _strides(call: OnnxSite, stride: _Ints, padding: _Ints, dilation: _Ints) -> dict[str, Any]:
    """Attributes of sliding windows, with one value for each spatial axis."""
    steps, pads, gaps = windows.attributes(call.result.ndim - 2, stride, padding, dilation)
    before, after = zip(*pads, strict=True)
    return {"strides": list(steps), "pads": [*before, *after], "dilations": list(gaps)}


def _window(call: OnnxSite, kernel: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints) -> dict[str, Any]:
    shape = list(windows.per_axis("kernel", kernel, call.result.ndim - 2))
    return {"kernel_shape": shape, **_strides(call, stride or kernel, padding, dilation)}


@row("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    call: OnnxSite,
    x: str,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    count_include_pad: bool,
) -> str | None:
    # Implementations divide windows beyond the padding in different ways.
    if (ceil_mode and count_include_pad and any(padding)) or any(d != 1 for d in dilation):
        return None
    options = _window(call, kernel, stride, padding, dilation)
    del options["dilations"]  # opset 18 has none
    return call.node("AveragePool", x, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad), **options)


@row("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(call: OnnxSite, x: str, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> str:
    return call.node("MaxPool", x, ceil_mode=int(ceil_mode), **_window(call, kernel, stride, padding, dilation))


@row("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    call: OnnxSite, x: str, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    spatial = call.types[0].shape[2:]
    if not all(isinstance(d, int) for d in spatial):
        return None
    options = _window(call, kernel, stride, padding, dilation)
    values, positions = call.node("MaxPool", x, outputs=2, ceil_mode=int(ceil_mode), **options)
    plane = call.number(prod(int(d) for d in spatial), "int64")  # ONNX counts positions through the whole tensor
    return values, call.cast(call.node("Mod", positions, plane), "int64", call.results[1].dtype)


def _adaptive(kind: str) -> Function:
    def convert(call: OnnxSite, x: str, size: tuple[int, ...]) -> str | None:
        spatial = call.types[0].shape[2:]
        if all(s == 1 for s in size):
            if call.is_float:
                return call.node(f"Global{kind}", x)
            return call.node("ReduceMax", x, call.integers(range(2, call.result.ndim)))
        if any(not isinstance(d, int) or d % s for d, s in zip(spatial, size, strict=True)):
            return None
        kernel = [int(d) // s for d, s in zip(spatial, size, strict=True)]
        return call.node(kind, x, kernel_shape=kernel, strides=kernel)

    return convert


row(*(f"adaptive_avg_pool{n}d" for n in (1, 2, 3)))(_adaptive("AveragePool"))
row(*(f"adaptive_max_pool{n}d" for n in (1, 2, 3)))(_adaptive("MaxPool"))


@row("batch_norm_infer")
def batch_norm_infer(
    call: OnnxSite, x: str, mean: str, var: str, w: str | None, b: str | None, eps: float, axis: int
) -> str | None:
    kind, statistics = call.types[0], call.types[1]
    if kind.ndim < 2:
        return None
    axis %= kind.ndim
    size = kind.shape[axis]
    if not isinstance(size, int):
        return None
    channels = (size,)
    scale = w or call.graph.constant(np.ones(channels), statistics.dtype)
    bias = b or call.graph.constant(np.zeros(channels), statistics.dtype)
    # Exchanging two axes is its own inverse.
    order = [{1: axis, axis: 1}.get(i, i) for i in range(kind.ndim)]
    moved = x if axis == 1 else call.node("Transpose", x, perm=order)
    result = call.node("BatchNormalization", moved, scale, bias, mean, var, epsilon=eps)
    return result if axis == 1 else call.node("Transpose", result, perm=order)


def _is_trailing(call: OnnxSite, axis: tuple[int, ...]) -> bool:
    ndim = call.types[0].ndim
    return sorted(a % ndim for a in axis) == list(range(ndim - len(axis), ndim))


def _ones(call: OnnxSite, axis: tuple[int, ...]) -> str | None:
    """A scale of ones for the normalised axes, None if their sizes are open."""
    shape = call.types[0].shape[call.types[0].ndim - len(axis) :]
    return call.graph.constant(np.ones(shape), call.dtype) if all(isinstance(d, int) for d in shape) else None


@row("layer_norm")
def layer_norm(
    call: OnnxSite, x: str, scale: str | None, bias: str | None, axis: tuple[int, ...], eps: float
) -> str | None:
    weight = (scale or _ones(call, axis)) if _is_trailing(call, axis) else None
    if weight is None:
        return None
    return call.node("LayerNormalization", x, weight, bias or "", axis=-len(axis), epsilon=eps)


@row("rms_norm")
def rms_norm(call: OnnxSite, x: str, scale: str | None, axis: tuple[int, ...], eps: float) -> str | None:
    if not _is_trailing(call, axis) or call.opset < 23:
        return None
    weight = scale or _ones(call, axis)
    return None if weight is None else call.node("RMSNormalization", x, weight, axis=-len(axis), epsilon=eps)


_LSE: Final = 1
"""The position of the logarithms of sums among the results of attention."""


@row("attention_with_lse")
def attention(call: OnnxSite, q: str, k: str, v: str, causal: bool, scale: float | None, bias: str | None) -> Any:
    queries, keys = call.types[0], call.types[1]
    if bias is not None or _LSE in call.used or (causal and queries.shape[-2] != keys.shape[-2]):
        return None
    features = queries.shape[-1]
    if scale is None and not isinstance(features, int):
        return None
    factor = scale if scale is not None else float(features) ** -0.5
    if call.opset >= 23 and queries.ndim == 4 and queries.shape[:-2] == keys.shape[:-2]:
        return call.node("Attention", q, k, v, is_causal=int(causal), scale=factor), ""
    if causal:
        return None
    scores = call.node("MatMul", call.node("Mul", q, call.number(factor)), _exchanged(call, k, keys.ndim))
    return call.node("MatMul", call.node("Softmax", scores, axis=-1), v), ""
