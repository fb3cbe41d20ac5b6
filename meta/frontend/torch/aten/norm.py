"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype, is_complex, real_dtype
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row, rows

rows({
    "layer_norm": lambda input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True:
        meta.layer_norm(input, weight, bias, _last(input, normalized_shape), eps),
    "group_norm": lambda input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True:
        meta.group_norm(input, num_groups, weight, bias, eps=eps),
    # The results of native_batch_norm in training, and a reserve, which is empty.
    "_batch_norm_with_update": lambda input, weight, bias, running_mean, running_var, momentum, eps:
        (*native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps), _reserve(input)),
    "_batch_norm_no_update": lambda input, *moments, **settings:
        (*_native_batch_norm_legit_no_training(input, *moments, **settings), _reserve(input)),
    "_weight_norm": lambda v, g, dim=0: _weight_norm_interface(v, g, dim)[0],
})  # fmt: skip


def _last(x: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """The axes that normalized_shape names. Raises ArgumentError unless they are the last of x."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ArgumentError("layer_norm", f"normalized_shape is {shape} for shape {x.shape}", "its last sizes")
    return tuple(range(-len(shape), 0))


@row()
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    """For complex numbers ATen takes the mean of their squares, which are complex."""
    axes = _last(input, normalized_shape)
    small = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    eps = small[real_dtype(input.dtype)] if eps is None else eps
    if not is_complex(input.dtype):
        return meta.rms_norm(input, weight, axes, eps)
    out = input * meta.rsqrt(meta.mean(meta.square(input), axes, keepdims=True) + eps)
    return out if weight is None else out * weight


def _trained(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> tuple[Any, ...]:
    """Output, mean and reciprocal deviation of the batch, which have no gradient, and the new running statistics."""
    channels = (x.shape[1],)
    kind = weight.dtype if weight is not None else x.dtype
    old = mean if mean is not None else meta.zeros(channels, kind, x.device)
    spread = var if var is not None else meta.ones(channels, kind, x.device)
    out, new_mean, new_var, *batch = meta.batch_norm_train(x, old, spread, weight, bias, momentum, eps)
    saved = _statistics(x, weight, bias)
    return out, *(meta.cast(_detached(statistic), saved) for statistic in batch), new_mean, new_var


@row()
def batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """Normalised by the statistics of the batch when training; running statistics are then updated in place."""
    if input.ndim < 2 and input.size == 0:
        return input
    if not training:
        return meta.batch_norm_infer(input, running_mean, running_var, weight, bias, eps)
    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@row()
def instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """Running statistics are updated in place by the examples' statistics, averaged over the batch."""
    if not use_input_stats:
        return meta.batch_norm_infer(input, running_mean, running_var, weight, bias, eps)
    wide, axes = meta.cast(_detached(input), accumulation_dtype(input.dtype)), tuple(range(2, input.ndim))
    for running, statistic in ((running_mean, meta.mean(wide, axes)), (running_var, meta.var(wide, axes))):
        if running is not None:
            value = meta.mean(statistic, 0)
            running.update(meta.cast(running + (value - running) * momentum, running.dtype))
    return meta.instance_norm(input, weight, bias, eps)


def _detached(x: Tensor) -> Any:
    return meta.stop_gradient(x)


def _statistics(x: Any, *parameters: Any) -> str:
    """The dtype of saved statistics: the dtype of x, or the wide one if parameters have another."""
    is_mixed = any(t is not None and t.dtype != x.dtype for t in parameters)
    return accumulation_dtype(x.dtype) if is_mixed else x.dtype


@row()
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """The result, and mean and reciprocal deviation of each row, which have no gradient."""
    kind, axes = _statistics(input, weight, bias), _last(input, normalized_shape)
    y, *statistics = meta.layer_norm_train(input, weight, bias, axes, eps)
    return y, *(meta.cast(_detached(statistic), kind) for statistic in statistics)


@row()
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    """The result, and mean and reciprocal deviation of each group."""
    wide = meta.cast(input, accumulation_dtype(input.dtype))
    flat = meta.reshape(wide, (N, group, C // group * HxW))
    mean, deviation = meta.mean(flat, 2), meta.rsqrt(meta.var(flat, 2, 0) + eps)
    kind = _statistics(input, weight, bias)
    out = meta.group_norm(input, group, weight, bias, eps=eps)
    return out, meta.cast(mean, kind), meta.cast(deviation, kind)


@row("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any = None, running_var: Any = None, training: Any = True,
    momentum: Any = 0.1, eps: Any = 1e-5,
) -> Any:  # fmt: skip
    """The result, and mean and reciprocal deviation of the batch: without elements unless training. The overload
    without running statistics has `training` in their place."""
    if isinstance(running_mean, bool):
        running_mean, running_var, training, momentum, eps = None, None, running_mean, running_var, training
    if not training:
        return _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps)
    *out, new_mean, new_var = _trained(input, weight, bias, running_mean, running_var, momentum, eps)
    for running, value in ((running_mean, new_mean), (running_var, new_var)):
        if running is not None:
            running.update(value.detach() if hasattr(value, "detach") else value)
    return tuple(out)


@row()
def _native_batch_norm_legit_no_training(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    out = meta.batch_norm_infer(input, running_mean, running_var, weight, bias, eps)
    nothing = meta.zeros((0,), _statistics(input, weight, bias), input.device)
    return out, nothing, nothing


@row()
def _native_batch_norm_legit_functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The results of native_batch_norm, and the new running statistics: nothing is written."""
    if not training:
        moments = (running_mean, running_var)
        return *_native_batch_norm_legit_no_training(input, weight, bias, *moments, momentum, eps), *moments
    return _trained(input, weight, bias, meta.copy(running_mean), meta.copy(running_var), momentum, eps)


@row()
def _batch_norm_with_update_functional(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    """As _batch_norm_with_update, with the new running statistics as further results."""
    *out, new_mean, new_var = _native_batch_norm_legit_functional(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *out, _reserve(input), new_mean, new_var


def _reserve(x: Tensor) -> Any:
    return meta.zeros((0,), "uint8", x.device)


def _other_axes(x: Tensor, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != dim % x.ndim)


@row()
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """v with slices of the norms g along an axis, and the norms that v has (T. Salimans, D. Kingma, "Weight
    Normalization", 2016)."""
    wide = accumulation_dtype(v.dtype)
    norm = meta.linalg.vector_norm(meta.cast(v, wide), 2, _other_axes(v, dim), True)
    slices = meta.reshape(meta.cast(g, wide), norm.shape)
    return meta.cast(meta.cast(v, wide) * (slices / norm), v.dtype), meta.reshape(norm, g.shape)


@row()
def _weight_norm_interface_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> Any:
    """The gradients of v and g."""
    wide = saved_norms.dtype
    dw, v, g = (meta.cast(x, wide) for x in (grad_w, saved_v, saved_g))
    products = meta.sum(dw * v, _other_axes(v, dim), True)
    norms, g = (meta.reshape(x, products.shape) for x in (saved_norms, g))
    dg = products / norms
    dv = (dw - v * (dg / norms)) * (g / norms)
    return meta.cast(dv, saved_v.dtype), meta.cast(meta.reshape(dg, saved_g.shape), saved_g.dtype)
