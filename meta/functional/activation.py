"""Activations composed of operators."""

from __future__ import annotations

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError
from meta.functional._axes import along

__all__ = ["glu", "prelu", "relu6", "rrelu", "softmin"]
AMP = {"prelu": "infer"}


def relu6(x: T) -> T:
    """min(max(x, 0), 6), in the dtype of x."""
    return meta.hardtanh(x, 0, 6)


def glu(x: T, axis: int = -1) -> T:
    """a * sigmoid(b), with x split into the halves a and b along an axis (Y. Dauphin et al., 2017).

    Raises ArgumentError for a tensor without axes and an axis of odd size, TypeInferenceError for an axis out of
    range."""
    size = x.shape[axis] if -x.ndim <= axis < x.ndim else 2
    if not x.ndim or (isinstance(size, int) and size % 2):
        problem = f"axis {axis} of shape {x.shape} has no two halves"
        raise ArgumentError("glu", problem, "an axis of even size")
    a, b = meta.split(x, 2, axis)
    return a * meta.sigmoid(b)


def prelu(x: T, weight: T) -> T:
    """x above 0, weight * x elsewhere (K. He et al., 2015).

    weight: of the dtype of x; a scalar, or of shape (1,), or with one slope for each channel along axis 1 of x (of each
    element for x of one axis). Raises ArgumentError for other shapes and dtypes."""
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        expected = "a scalar, (1,)" + (f" or ({channels},), one for each channel" if x.ndim > 1 else "")
        raise ArgumentError("prelu", f"'weight' has shape {weight.shape}, 'x' has {x.shape}", expected)
    if weight.dtype != x.dtype:
        problem = f"x is {x.dtype}, weight is {weight.dtype}"
        raise ArgumentError("prelu", problem, "one dtype for both", f'cast it: weight.cast("{x.dtype}")')
    is_per_channel = weight.size != 1
    slope = along(weight, 1, x.ndim) if is_per_channel else meta.reshape(weight, (1,) * x.ndim)
    return meta.where(meta.greater(x, 0), x, slope * x)


def rrelu(x: T, key: T | None = None, lower: float = 1 / 8, upper: float = 1 / 3) -> T:
    """x above 0, slope * x elsewhere, with a random slope for each element (B. Xu et al., "Empirical Evaluation of
    Rectified Activations in Convolutional Network", 2015).

    key: a random key (`meta.random.next_key()`), with which slopes are uniform in [lower, upper); None for their mean,
    as in evaluation. Raises ArgumentError for lower > upper."""
    if lower > upper:
        raise ArgumentError("rrelu", f"lower is {lower}, upper is {upper}", "lower <= upper")
    if key is None:
        return meta.leaky_relu(x, (lower + upper) / 2)
    return meta.where(meta.greater(x, 0), x, meta.uniform(key, x.shape, lower, upper, x.dtype) * x)


def softmin(x: T, axis: int = -1) -> T:
    """Softmax of -x along an axis. Raises TypeInferenceError for an axis out of range and other than floats."""
    return meta.softmax(meta.negative(x), axis)
