"""Declarations of optimiser steps."""

from __future__ import annotations

from typing import Any

from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import optimizer


def _require(x: TensorType, dx: TensorType, *numbers: Any, **states: TensorType) -> None:
    """Raise TypeInferenceError unless tensors are floating, of one shape and device, and numbers are 0-d."""
    rules.require_float("x", x)
    rules.require_same_dtype(x=x, dx=dx)
    rules.require_same_shape(x=x, dx=dx, **states)
    for state, t in states.items():
        rules.require_float(state, t)
    scalars = [t for t in numbers if isinstance(t, TensorType)]
    for t in scalars:
        rules.require(t.ndim == 0, f"a number has shape {rules.show(t.shape)}", "a number or a 0-d tensor")
    rules.same_device(x, dx, *states.values(), *scalars)


@declare(
    "sgd",
    schema=optimizer.sgd,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "v"},
    outputs=("x", "v"),
)
def sgd(
    x: TensorType, dx: TensorType, v: TensorType, learning_rate: Any, momentum: Any, weight_decay: Any, nesterov: bool
) -> TupleType:
    """A step of gradient descent with momentum, in place: v <- momentum * v + dx + weight_decay * x, then
    x <- x - learning_rate * v. Returns x and v. (I. Sutskever et al., 2013, with the learning rate
    outside of the velocity, so that a change of it takes effect at once.)"""
    _require(x, dx, learning_rate, momentum, weight_decay, v=v)
    return TupleType((x, v))


@declare(
    "adam",
    schema=optimizer.adam,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "m", 2: "v"},
    outputs=("x", "m", "v"),
)
def adam(
    x: TensorType, dx: TensorType, m: TensorType, v: TensorType, step: Any, learning_rate: Any, beta1: Any, beta2: Any,
    eps: Any, weight_decay: Any, decoupled: bool,
) -> TupleType:  # fmt: skip
    """A step of Adam (D. Kingma and J. Ba, 2015), or with `decoupled` of AdamW (I. Loshchilov and F. Hutter, 2019), in
    place: m <- beta1 * m + (1 - beta1) * dx, v <- beta2 * v + (1 - beta2) * dx**2,
    x <- x - learning_rate * (m / (1 - beta1**step)) / (sqrt(v / (1 - beta2**step)) + eps). Returns x, m and v.

    With 0-d tensors as betas, 1 - beta**step is computed in float64 for each element; an optimizer computes it once and
    passes learning_rate * sqrt(1 - beta2**step) / (1 - beta1**step), eps * sqrt(1 - beta2**step) and no step."""
    _require(x, dx, step, learning_rate, beta1, beta2, eps, weight_decay, m=m, v=v)
    return TupleType((x, m, v))
