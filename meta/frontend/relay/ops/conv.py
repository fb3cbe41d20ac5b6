"""Convolutions, their transposes and gradients."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import category, is_int, itemsize
from meta.frontend._by_rank import AXES, CONV, CONV_TRANSPOSE
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.tensor_layout import convert_layout, is_permutation, permuted, spatial_rank


def widened(call: OpCall, *tensors: Any) -> tuple[Any, ...]:
    """The operands in the dtype out_dtype, if that is wider; narrower dtypes are refused."""
    out = call.text("out_dtype")
    dtype = tensors[0].dtype
    if not out or out == dtype:
        return tensors
    wider = category(out) >= category(dtype) and itemsize(out) >= itemsize(dtype)
    if not wider:
        call.refuse(f"out_dtype {out} for operands of {dtype}", "a dtype at least as wide")
    return tuple(meta.cast(t, out) for t in tensors)


def _check_kernel_size(call: OpCall, w: Tensor, layout: str) -> None:
    """Check kernel_size against the shape of the kernel."""
    size = call.axes("kernel_size")
    actual = tuple(w.shape[layout.index(c)] for c in AXES[len(layout) - 2])
    if size is not None and size != () and tuple(size) * (len(actual) if len(size) == 1 else 1) != actual:
        call.refuse(f"kernel_size {size} for a kernel of shape {w.shape}", f"{actual}")


def _window(call: OpCall, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """stride, padding and dilation."""
    ones, zeros = (1,) * rank, (0,) * rank
    stride, dilation = call.sizes("strides", ones), call.sizes("dilation", ones)
    return stride, call.sizes("padding", zeros), dilation


@converter("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv(call: OpCall) -> Any:
    x, w = call.tensors(2)
    return convolved(call, *widened(call, x, w))


def convolved(call: OpCall, x: Tensor, w: Tensor) -> Any:
    """The convolution that the attributes describe, of operands in the layouts of the attributes."""
    rank = spatial_rank(call)
    axes = AXES[rank]
    plain, kernel_plain = "NC" + axes, "OI" + axes
    layout = call.text("data_layout", plain) or plain
    kernel_layout = call.text("kernel_layout", kernel_plain) or kernel_plain
    out_layout = call.text("out_layout") or layout
    groups = call.int("groups", 1)
    if is_permutation(kernel_layout, kernel_plain) and w.ndim == rank + 2:
        _check_kernel_size(call, w, kernel_layout)
    else:
        call.get("kernel_size")
    x = convert_layout(call, x, layout, plain)
    w = convert_layout(call, w, kernel_layout, kernel_plain)
    w = _depthwise(x, w, groups)
    channels = call.get("channels")
    if channels is not None and int(channels) != w.shape[0]:
        call.refuse(f"channels is {channels} for a kernel of shape {w.shape}", f"{w.shape[0]}")
    y = CONV[rank](x, w, *_window(call, rank), groups)
    return convert_layout(call, y, plain, out_layout)


def _depthwise(x: Tensor, w: Tensor, groups: int) -> Any:
    """Kernels of depthwise convolutions, (channels, multiplier, ...) in Relay, as (channels * multiplier, 1, ...)."""
    if groups > 1 and groups == x.shape[1] == w.shape[0] and w.shape[1] != 1:
        return meta.reshape(w, (w.shape[0] * w.shape[1], 1, *w.shape[2:]))
    return w


def _transpose_layout(call: OpCall, channels: Any, w: Tensor, axes: str) -> str:
    """The layout of the kernel of a transposed convolution of a tensor with that number of channels.

    With one and three spatial axes Relay swaps O and I. With two it did so before 2022: a kernel that fits only with O
    and I swapped is read that way."""
    default = "OI" + axes
    layout = call.text("kernel_layout", default) or default
    if not is_permutation(layout, default) or w.ndim != len(layout):
        call.refuse(f"kernel_layout {layout!r}", f"a permutation of {default!r}")
    if len(axes) != 2 or (w.shape[layout.index("I")] != channels and w.shape[layout.index("O")] == channels):
        return layout.translate(str.maketrans("OI", "IO"))
    return layout


@converter("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: OpCall) -> Any:
    x, w = call.tensors(2)
    return transposed(call, *widened(call, x, w))


def transposed(call: OpCall, x: Tensor, w: Tensor) -> Any:
    """The transposed convolution that the attributes describe, of operands in the layouts of the attributes."""
    rank = spatial_rank(call)
    axes = AXES[rank]
    plain, kernel_plain = "NC" + axes, "IO" + axes
    layout = call.text("data_layout", plain) or plain
    kernel_layout = _transpose_layout(call, x.shape[layout.index("C")] if "C" in layout else 0, w, axes)
    groups = call.int("groups", 1)
    _check_kernel_size(call, w, kernel_layout)
    x = convert_layout(call, x, layout, plain)
    w = permuted(w, kernel_layout, kernel_plain)
    channels = call.get("channels")
    if channels is not None and int(channels) != w.shape[1] * groups:
        call.refuse(f"channels is {channels} for a kernel of shape {w.shape}", f"{w.shape[1] * groups}")
    stride, padding, dilation = _window(call, rank)
    y = CONV_TRANSPOSE[rank](x, w, stride, padding, call.sizes("output_padding", (0,) * rank), dilation, groups)
    return convert_layout(call, y, plain, call.text("out_layout") or layout)


@converter("nn.conv2d_backward_weight")
def conv2d_backward_weight(call: OpCall) -> Any:
    """The gradient of the kernel, whose size is an attribute. The attributes have the names of a convolution's:
    data_layout is the layout of the gradient, kernel_layout the layout of x, and out_layout the layout of the
    result."""
    dy, x = widened(call, *call.tensors(2))
    grad_layout = call.text("data_layout", "NCHW") or "NCHW"
    layout = call.text("kernel_layout", "NCHW") or "NCHW"
    layout = "NCHW" if layout == "OIHW" else layout  # the default of a convolution
    kernel_layout = call.text("out_layout", "OIHW") or "OIHW"
    x = convert_layout(call, x, layout, "NCHW")
    dy = convert_layout(call, dy, grad_layout, "NCHW")
    groups = call.int("groups", 1)
    call.get("channels")
    shape = (dy.shape[1], x.shape[1] // groups, *call.sizes("kernel_size"))
    dw = meta.conv2d_dw(x, dy, shape, *_window(call, 2), groups)
    return convert_layout(call, dw, "OIHW", kernel_layout)


@converter("nn.dense", "nn.contrib_dense_pack")
def dense(call: OpCall) -> Any:
    x, w = widened(call, *call.tensors(2))
    if call.name == "nn.contrib_dense_pack":
        w = convert_layout(call, w, call.text("weight_layout", "NC") or "NC", "NC")
    units = call.get("units")
    if units is not None and int(units) != w.shape[0]:
        call.refuse(f"units is {units} for weights of shape {w.shape}", f"{w.shape[0]}")
    return product(x, w, transpose_b=True)


@converter("nn.matmul")
def matmul(call: OpCall) -> Any:
    x, w = widened(call, *call.tensors(2))
    transpose_a, transpose_b = call.flag("transpose_a"), call.flag("transpose_b")
    units = call.get("units")
    out = product(x, w, transpose_a, transpose_b)
    if units is not None and int(units) != out.shape[-1]:
        call.refuse(f"units is {units} for weights of shape {w.shape}", f"{out.shape[-1]}")
    return out


@converter("nn.batch_matmul")
def batch_matmul(call: OpCall) -> Any:
    x, y = widened(call, *call.tensors(2))
    return product(x, y, call.flag("transpose_a"), call.flag("transpose_b"))


def product(x: Tensor, w: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """The matrix product; `dense` for a layer: a matrix of weights, transposed."""
    if not transpose_a and transpose_b and w.ndim == 2 and not is_int(x.dtype):
        return meta.dense(x, w)
    return meta.matmul(x, w, transpose_a, transpose_b)
