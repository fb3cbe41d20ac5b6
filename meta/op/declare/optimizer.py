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


@declare(
    "amsgrad",
    schema=optimizer.amsgrad,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "m", 2: "v", 3: "v_max"},
    outputs=("x", "m", "v", "v_max"),
)
def amsgrad(
    x: TensorType, dx: TensorType, m: TensorType, v: TensorType, v_max: TensorType, step: Any, learning_rate: Any,
    beta1: Any, beta2: Any, eps: Any, weight_decay: Any, decoupled: bool,
) -> TupleType:  # fmt: skip
    """A step of Adam that divides by the largest v so far (S. Reddi et al., 2018), in place: m and v as in `adam`,
    v_max <- maximum(v_max, v), and v_max in place of v in the new x. Returns x, m, v and v_max."""
    _require(x, dx, step, learning_rate, beta1, beta2, eps, weight_decay, m=m, v=v, v_max=v_max)
    return TupleType((x, m, v, v_max))


@declare(
    "adagrad",
    schema=optimizer.adagrad,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "total"},
    outputs=("x", "total"),
)
def adagrad(
    x: TensorType, dx: TensorType, total: TensorType, learning_rate: Any, eps: Any, weight_decay: Any
) -> TupleType:
    """A step of Adagrad (J. Duchi et al., 2011), in place: total <- total + g**2 with g = dx + weight_decay * x, then
    x <- x - learning_rate * g / (sqrt(total) + eps). Returns x and total."""
    _require(x, dx, learning_rate, eps, weight_decay, total=total)
    return TupleType((x, total))


@declare(
    "rmsprop",
    schema=optimizer.rmsprop,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "v", 2: "velocity"},
    outputs=("x", "v", "velocity"),
)
def rmsprop(
    x: TensorType, dx: TensorType, v: TensorType, velocity: TensorType, learning_rate: Any, alpha: Any, eps: Any,
    weight_decay: Any, momentum: Any,
) -> TupleType:  # fmt: skip
    """A step of RMSprop (T. Tieleman and G. Hinton, 2012), in place: v <- alpha * v + (1 - alpha) * g**2 with
    g = dx + weight_decay * x, velocity <- momentum * velocity + g / (sqrt(v) + eps), x <- x - learning_rate * velocity.
    Returns x, v and velocity."""
    _require(x, dx, learning_rate, alpha, eps, weight_decay, momentum, v=v, velocity=velocity)
    return TupleType((x, v, velocity))


@declare(
    "rmsprop_centered",
    schema=optimizer.rmsprop_centered,
    pattern="elemwise",
    amp="never",
    amp_args=("dx",),
    inplace={0: "x", 1: "v", 2: "velocity", 3: "m"},
    outputs=("x", "v", "velocity", "m"),
)
def rmsprop_centered(
    x: TensorType, dx: TensorType, v: TensorType, velocity: TensorType, m: TensorType, learning_rate: Any, alpha: Any,
    eps: Any, weight_decay: Any, momentum: Any,
) -> TupleType:  # fmt: skip
    """A step of RMSprop by the variance of the gradient (A. Graves, 2013), in place: as `rmsprop`, with
    m <- alpha * m + (1 - alpha) * g and v - m**2 in place of v in the new velocity. Returns x, v, velocity and m."""
    _require(x, dx, learning_rate, alpha, eps, weight_decay, momentum, v=v, velocity=velocity, m=m)
    return TupleType((x, v, velocity, m))
