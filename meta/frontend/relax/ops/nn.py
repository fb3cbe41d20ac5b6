"""Products, convolutions, pooling, normalisations, attention and losses."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend._by_rank import CONV_TRANSPOSE
from meta.frontend.quantized import dequantized, quantized
from meta.frontend.relax.ops._table import row, rows, shared, tensor
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.tensor_layout import SPATIAL_LAYOUTS, convert_layout, permuted, spatial_rank
from meta.frontend.relay.ops.conv import widened
from meta.frontend.relay.ops.nn import grouped, with_parameters
from meta.frontend.relay.ops.pool import max_pool as pooled
from meta.functional._checks import as_dtype

shared(
    "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d", "nn.avg_pool1d", "nn.avg_pool2d",
    "nn.avg_pool3d", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.cross_entropy_with_logits", "nn.log_softmax",
    "nn.softmax",
)  # fmt: skip


@row("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def max_pool(call: OpCall) -> Any:
    call.get("count_include_pad")  # of averages
    return pooled(call)


rows({
    "einsum": lambda call: meta.einsum(call.text("subscripts"), *call.tuple()),
    "matmul": lambda call: meta.matmul(*widened(call, *call.tensors(2))),
    "nn.pixel_shuffle": lambda call: meta.pixel_shuffle(tensor(call, 0), call.int("upscale_factor")),
    "outer": lambda call: meta.outer(*call.tensors(2)),
})  # fmt: skip


@row("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: OpCall) -> Any:
    rank = spatial_rank(call)
    plain, kernel_plain = SPATIAL_LAYOUTS[rank], "IO" + SPATIAL_LAYOUTS[rank][2:]
    x, w = widened(call, *call.tensors(2))
    layout = call.text("data_layout", plain) or plain
    x = convert_layout(call, x, layout, plain)
    w = permuted(w, call.text("kernel_layout", kernel_plain) or kernel_plain, kernel_plain)
    window = (call.sizes("strides"), call.sizes("padding"), call.sizes("output_padding"), call.sizes("dilation"))
    y = CONV_TRANSPOSE[rank](x, w, *window, call.int("groups", 1))
    return convert_layout(call, y, plain, call.text("out_layout") or layout)


@row("nn.pad")
def pad(call: OpCall) -> Any:
    """The widths are pairs for each axis, in a row."""
    x, width = tensor(call, 0), call.sizes("pad_width")
    mode, value = call.only("pad_mode", "constant", "edge", "reflect", "replicate", "circular"), call.float("pad_value")
    names: dict[str, Any] = {"replicate": "edge", "circular": "wrap"}
    return meta.pad(x, width, value) if mode == "constant" else meta.pad(x, width, mode=names.get(mode, mode))


@row("nn.dropout")
def dropout(call: OpCall) -> Any:
    """The identity, as in Relax, which runs programs for inference, and a mask of ones."""
    x = tensor(call, 0)
    call.get("rate")
    return (x, meta.ones_like(x))


@row("nn.batch_norm")
def batch_norm(call: OpCall) -> Any:
    """With `training` by the statistics of the batch, and with moved running ones; else by the running ones."""
    x, gamma, beta, mean, var = call.tensors(5)
    w = gamma if call.flag("scale", True) else None
    b = beta if call.flag("center", True) else None
    axis, eps, momentum = call.int("axis", 1), call.float("epsilon", 1e-5), call.float("momentum", 0.1)
    if not call.flag("training", True):
        return (meta.batch_norm_infer(x, mean, var, w, b, eps, axis), mean, var)
    axes = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    row_shape = tuple(d if i == axis % x.ndim else 1 for i, d in enumerate(x.shape))
    batch_mean, batch_var = meta.mean(x, axes), meta.var(x, axes, 0)
    y = meta.multiply(meta.subtract(x, meta.reshape(batch_mean, row_shape)),
                      meta.rsqrt(meta.add(meta.reshape(batch_var, row_shape), eps)))  # fmt: skip
    y = y if w is None else meta.multiply(y, meta.reshape(w, row_shape))
    y = y if b is None else meta.add(y, meta.reshape(b, row_shape))
    return (y, _moved(mean, batch_mean, momentum), _moved(var, batch_var, momentum))


def _moved(old: Tensor, new: Tensor, momentum: float) -> Any:
    return meta.add(meta.multiply(old, 1 - momentum), meta.multiply(new, momentum))


@row("nn.layer_norm")
def layer_norm(call: OpCall) -> Any:
    x, gamma, beta = call.tensors(3)
    axes, eps = call.sizes("axes"), call.float("epsilon", 1e-5)
    return meta.layer_norm(x, gamma if call.flag("scale", True) else None, beta if call.flag("center", True) else None,
                           axes, eps)  # fmt: skip


@row("nn.rms_norm")
def rms_norm(call: OpCall) -> Any:
    x, weight = call.tensors(2)
    return meta.rms_norm(x, weight, call.sizes("axes"), call.float("epsilon", 1e-5))


@row("nn.group_norm")
def group_norm(call: OpCall) -> Any:
    """Normalises groups of channels over the channels of a group and `axes`."""
    x, *parameters = call.tensors(3)
    axes = tuple(a % x.ndim for a in call.sizes("axes", ()))
    return grouped(call, x, parameters, call.int("channel_axis") % x.ndim, axes)


@row("nn.instance_norm")
def instance_norm(call: OpCall) -> Any:
    """Normalises each channel of each batch element over `axes`."""
    x, *parameters = call.tensors(3)
    y = meta.layer_norm(x, None, None, call.sizes("axes"), call.float("epsilon", 1e-5))
    return with_parameters(call, y, parameters, call.int("channel_axis") % x.ndim)


@row("nn.attention", "nn.attention_bias")
def attention(call: OpCall) -> Any:
    """Attention of tensors (batch, length, heads, size). A causal mask is aligned with the first or with the last
    key."""
    q, k, v, *bias = (meta.transpose(x, (0, 2, 1, 3)) if i < 3 else x for i, x in enumerate(call.tensors(3, 4)))
    scale, causal = call.get("scale"), call.get("causal_mask")
    if call.get("window_size") is not None:
        call.refuse(f"window_size is {call.get('window_size')}", "attention to all keys")
    if causal not in (None, "TopLeft") and (causal != "BottomRight" or q.shape[2] != k.shape[2]):
        call.refuse(f"causal_mask is {causal!r} for {q.shape[2]} queries and {k.shape[2]} keys",
                    "TopLeft, or BottomRight with as many keys as queries")  # fmt: skip
    y = meta.attention(q, k, v, bias[0] if bias else None, causal is not None, None if scale is None else float(scale))
    return meta.transpose(y, (0, 2, 1, 3))


@row("nn.nll_loss")
def nll_loss(call: OpCall) -> Any:
    """Classes are along axis 1, of one axis along it."""
    x, target, *weight = call.tensors(2, 3)
    reduction = call.only("reduction", "mean", "sum", "none")
    y = meta.nll_loss(x if x.ndim > 1 else meta.expand_dims(x, (0,)),
                      meta.cast(target if x.ndim > 1 else meta.expand_dims(target, (0,)), "int64"),
                      weight[0] if weight else None, reduction, call.int("ignore_index", -100))  # fmt: skip
    return meta.squeeze(y, (0,)) if x.ndim == 1 and reduction == "none" else y


@row("quantize")
def quantize(call: OpCall) -> Any:
    """round(x / scale) + zero point, in the range of the dtype; halves are rounded to even."""
    x, scale, zero = call.tensors(3)
    x, scale = as_dtype(x, "float32"), as_dtype(scale, "float32")
    return quantized("relax.quantize", x, scale, zero, call.int("axis", -1), call.text("out_dtype"))


@row("dequantize")
def dequantize(call: OpCall) -> Any:
    """(x - zero point) * scale."""
    x, scale, zero = call.tensors(3)
    axis, dtype = call.int("axis", -1), call.text("out_dtype") or "float32"
    return as_dtype(dequantized("relax.dequantize", x, scale, zero, axis, "float32"), dtype)
