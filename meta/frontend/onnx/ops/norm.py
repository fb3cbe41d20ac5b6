"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import axes_of, axis_of, dtype_of
from meta.functional._checks import as_dtype


def _wants(node: Node, position: int) -> bool:
    """Whether an output is used."""
    return len(node.outputs) > position and bool(node.outputs[position])


# --- batches ---------------------------------------------------------------------------------------------------------


@row("BatchNormalization", since=14)
def batch_normalization(
    node: Node, X: Tensor, scale: Tensor, B: Tensor, input_mean: Tensor, input_var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0,
) -> Any:  # fmt: skip
    """In training by the batch's statistics; the running ones then keep the share `momentum` of the old values. The
    variances are population variances."""
    if not training_mode:
        return _by_statistics(X, scale, B, input_mean, input_var, epsilon)
    axes = (0, *range(2, X.ndim))
    wide = as_dtype(X, input_mean.dtype)
    mean, var = meta.mean(wide, axes), meta.var(wide, axes, 0)
    y = _by_statistics(X, scale, B, mean, var, epsilon)
    running = [
        meta.add(meta.multiply(old, momentum), meta.multiply(new, 1.0 - momentum))
        for old, new in ((input_mean, mean), (input_var, var))
    ]
    return y, *running


def _by_statistics(x: Tensor, scale: Any, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Any:
    if scale.dtype == mean.dtype == x.dtype:
        return meta.batch_norm_infer(x, mean, var, scale, bias, eps)
    wide = [as_dtype(v, "float32") for v in (x, mean, var, scale, bias)]
    return as_dtype(meta.batch_norm_infer(*wide, eps=eps), x.dtype)


@row("BatchNormalization", since=7)
def batch_normalization_7(
    node: Node, X: Tensor, scale: Tensor, B: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, spatial: int = 1,
) -> Any:  # fmt: skip
    """For inference: the statistics of a training batch are outputs that are refused."""
    if any(node.outputs[1:]):
        refuse(node, "the model trains in an opset before 14", "one output")
    if not spatial:
        return _by_element(X, scale, B, mean, var, epsilon)
    return _by_statistics(X, scale, B, mean, var, epsilon)


def _by_element(x: Tensor, scale: Any, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Any:
    normal = meta.multiply(meta.subtract(x, mean), meta.rsqrt(meta.add(var, eps)))
    return meta.add(meta.multiply(normal, scale), bias)


@row("BatchNormalization")
def batch_normalization_1(
    node: Node, X: Tensor, scale: Tensor, B: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, spatial: int = 1, is_test: int = 0, consumed_inputs: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    if not is_test:
        refuse(node, "is_test is 0", "1", "convert the model to opset 15")
    return batch_normalization_7(node, X, scale, B, mean, var, epsilon=epsilon, spatial=spatial)


row("InstanceNormalization")(
    lambda node, input, scale, B, *, epsilon=1e-5: meta.instance_norm(input, scale, B, epsilon)
)


# --- groups and layers -----------------------------------------------------------------------------------------------


@row("GroupNormalization", since=21)
def group_normalization(
    node: Node, X: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """Halves are normalised in float32 by meta, whatever stash_type is."""
    return meta.group_norm(X, num_groups, scale, bias, epsilon)


@row("GroupNormalization", since=18)
def group_normalization_18(
    node: Node, X: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> Any:
    """Scale and bias of a whole group."""
    each = X.shape[1] // num_groups
    return meta.group_norm(X, num_groups, meta.repeat(scale, each, 0), meta.repeat(bias, each, 0), epsilon)


@row("LayerNormalization")  # models that onnxruntime optimised have it in every opset
def layer_normalization(
    node: Node, X: Tensor, Scale: Tensor, B: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    """The result, and mean and reciprocal deviation of each row in the precision of stash_type."""
    first = axis_of("LayerNormalization", axis, X.ndim)
    axes = tuple(range(first, X.ndim))
    whole = all(v is None or tuple(v.shape) == tuple(X.shape[first:]) for v in (Scale, B))
    if whole and Scale.dtype == X.dtype:
        y = meta.layer_norm(X, Scale, B, axes, epsilon)
    else:
        y = meta.multiply(meta.layer_norm(X, None, None, axes, epsilon), Scale)
        y = y if B is None else meta.add(y, B)
    if not (_wants(node, 1) or _wants(node, 2)):
        return y
    wide = as_dtype(X, dtype_of("LayerNormalization", stash_type))
    mean, var = meta.mean(wide, axes, True), meta.var(wide, axes, 0, True)
    return y, mean, meta.rsqrt(meta.add(var, epsilon))


@row("RMSNormalization", since=23)
def rms_normalization(
    node: Node, X: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    first = axis_of("RMSNormalization", axis, X.ndim)
    axes = tuple(range(first, X.ndim))
    if scale.dtype == X.dtype and tuple(scale.shape) == tuple(X.shape[first:]):
        return meta.rms_norm(X, scale, axes, epsilon)
    return meta.multiply(as_dtype(meta.rms_norm(X, None, axes, epsilon), scale.dtype), scale)


@row("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node, X: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Any:
    """(x - mean) / (deviation + 1e-9), with the deviation as the root of a difference of means."""
    norm_axes = axes_of("MeanVarianceNormalization", axes, X.ndim)
    centred = meta.subtract(X, meta.mean(X, norm_axes, True))
    deviation = meta.sqrt(meta.mean(meta.multiply(centred, centred), norm_axes, True))
    return meta.divide(centred, meta.add(deviation, 1e-9))


@row("LpNormalization")
def lp_normalization(node: Node, input: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    """Slices whose norm is 0 stay 0."""
    if p not in (1, 2):
        raise TypeInferenceError("LpNormalization", f"p is {p}", "1 or 2")
    place = axis_of("LpNormalization", axis, input.ndim)
    if p == 1:
        norm = meta.sum(meta.abs(input), place, True)
    else:
        norm = meta.sqrt(meta.sum(meta.multiply(input, input), place, True))
    zero = meta.equal(norm, 0.0)
    return meta.divide(input, meta.where(zero, meta.ones_like(norm), norm))


@row("LRN")
def lrn(node: Node, X: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta; of an even size one more follows."""
    x = X if size % 2 else meta.flip(X, 1)
    y = meta.local_response_norm(x, size, alpha, beta, bias)
    return y if size % 2 else meta.flip(y, 1)
