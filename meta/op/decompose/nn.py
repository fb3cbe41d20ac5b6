"""Neural-network operators and their gradients."""

from __future__ import annotations

from typing import Any

import meta
from meta.op.decomposition import decomposition


@decomposition("softmax")
def softmax(x: Any, axis: int) -> Any:
    powers = meta.exp(_shifted(x, axis))
    return powers / meta.sum(powers, (axis,), True)


@decomposition("log_softmax")
def log_softmax(x: Any, axis: int) -> Any:
    shifted = _shifted(x, axis)
    return shifted - meta.log(meta.sum(meta.exp(shifted), (axis,), True))


def _shifted(x: Any, axis: int) -> Any:
    """x less the largest element along an axis, which may have none."""
    return x - meta.max(x, (axis,), True) if x.ndim == 0 or x.shape[axis] != 0 else x


@decomposition("bias_add")
def bias_add(x: Any, bias: Any, axis: int) -> Any:
    return x + meta.reshape(bias, tuple(-1 if i == axis % x.ndim else 1 for i in range(x.ndim)))


@decomposition("softmax_dx")
def softmax_dx(y: Any, dy: Any, axis: int) -> Any:
    return y * (dy - meta.sum(y * dy, (axis,), True))


@decomposition("log_softmax_dx")
def log_softmax_dx(y: Any, dy: Any, axis: int) -> Any:
    return dy - meta.exp(y) * meta.sum(dy, (axis,), True)


@decomposition("dropout", wide=False)
def dropout(x: Any, key: Any, p: float) -> tuple[Any, Any]:
    mask = meta.bernoulli(key, x.shape, 1 - p, "bool")
    return meta.dropout_dx(x, mask, p), mask


@decomposition("dropout_dx")
def dropout_dx(dy: Any, mask: Any, p: float) -> Any:
    return meta.where(mask, dy * (0.0 if p == 1 else 1 / (1 - p)), 0)
