"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into

ROWS: Rows = {}


def _last(x: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """The axes that normalized_shape names. Raises ArgumentError unless they are the last of x."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ArgumentError("layer_norm", f"normalized_shape is {shape} for shape {x.shape}", "its last sizes")
    return tuple(range(-len(shape), 0))


@into(ROWS)
def layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    return meta.layer_norm(input, weight, bias, _last(input, normalized_shape), eps)


@into(ROWS)
def rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    axes = _last(input, normalized_shape)
    small = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    return meta.rms_norm(input, weight, axes, small[input.dtype] if eps is None else eps)


@into(ROWS)
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    return meta.group_norm(input, num_groups, weight, bias, eps=eps)


@into(ROWS)
def batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """Normalised by the statistics of the batch when training; running statistics are then updated in place."""
    if not training:
        return meta.batch_norm_infer(input, running_mean, running_var, weight, bias, eps)
    return _trained(input, weight, bias, running_mean, running_var, momentum, eps)[0]


def _trained(x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> tuple[Any, Any, Any]:
    """Output, mean and reciprocal deviation of the batch."""
    channels = (x.shape[1],)
    kind = weight.dtype if weight is not None else x.dtype
    old = mean if mean is not None else meta.zeros(channels, kind, x.device)
    spread = var if var is not None else meta.ones(channels, kind, x.device)
    out, new_mean, new_var, batch_mean, inverse = meta.batch_norm_train(x, old, spread, weight, bias, momentum, eps)
    for running, value in ((mean, new_mean), (var, new_var)):
        if running is not None:
            running.update(value.detach() if hasattr(value, "detach") else value)
    return out, batch_mean, inverse


@into(ROWS)
def instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    if not use_input_stats:
        return meta.batch_norm_infer(input, running_mean, running_var, weight, bias, eps)
    return meta.instance_norm(input, weight, bias, eps=eps)
