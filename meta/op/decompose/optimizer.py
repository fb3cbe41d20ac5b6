"""Steps of optimizers: the new parameter and the new states, in the order of the operators' results."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.op.decomposition import decomposition

_Number = Tensor | float


def _in_dtype(x: Tensor, *values: Tensor | float | None) -> list[Any]:
    """Tensors in the dtype of x, and numbers."""
    return [meta.cast(v, x.dtype) if isinstance(v, Tensor) else v for v in values]


def _decayed(x: Tensor, weight_decay: _Number, decayed: Tensor, plain: Tensor) -> Any:
    """`decayed`, or `plain` for a decay of 0: 0 * x is not 0 for infinities."""
    if not isinstance(weight_decay, Tensor):
        return plain if weight_decay == 0 else decayed
    return meta.where(meta.equal(weight_decay, 0), plain, decayed)


def _gradient(x: Tensor, dx: Tensor, weight_decay: _Number) -> Any:
    return _decayed(x, weight_decay, dx + weight_decay * x, dx)


def _running_mean(state: Tensor, beta: _Number, value: Tensor) -> Any:
    """1 - beta has few digits in float32: the difference is rounded, and not beta."""
    if not isinstance(beta, Tensor):
        return beta * state + (1 - beta) * value
    rest = meta.cast(1.0 - meta.cast(beta, "float64"), value.dtype)
    return meta.cast(beta, value.dtype) * state + rest * value


def _correction(beta: _Number, step: _Number, x: Tensor) -> Any:
    """1 - beta**step: a running mean that started at 0 is divided by it."""
    step = step if isinstance(step, Tensor) else meta.full((), step, "float64", x.device)
    if isinstance(beta, Tensor):
        return meta.cast(1.0 - meta.power(meta.cast(beta, "float64"), meta.cast(step, "float64")), x.dtype)
    if beta == 0:
        return 1.0
    log: Any = getattr(beta, "log", None)  # of a number that a kernel takes at run time
    return -meta.expm1(meta.cast(step, x.dtype) * (math.log(beta) if log is None else log()))


@decomposition("sgd")
def sgd(
    x: Tensor, dx: Tensor, v: Tensor, learning_rate: _Number, momentum: _Number, weight_decay: _Number, nesterov: bool
) -> tuple[Any, ...]:
    dx, v, rate, momentum, decay = _in_dtype(x, dx, v, learning_rate, momentum, weight_decay)
    gradient = _gradient(x, dx, decay)
    velocity = momentum * v + gradient
    return x - rate * (gradient + momentum * velocity if nesterov else velocity), velocity


@decomposition("adam")
def adam(x: Tensor, dx: Tensor, m: Tensor, v: Tensor, *numbers: Any) -> tuple[Any, ...]:
    return amsgrad(x, dx, m, v, None, *numbers)


@decomposition("amsgrad")
def amsgrad(
    x: Tensor, dx: Tensor, m: Tensor, v: Tensor, v_max: Tensor | None, step: _Number | None, learning_rate: _Number,
    beta1: _Number, beta2: _Number, eps: _Number, weight_decay: _Number, decoupled: bool,
) -> tuple[Any, ...]:  # fmt: skip
    dx, m, v, v_max, rate, eps, decay = _in_dtype(x, dx, m, v, v_max, learning_rate, eps, weight_decay)
    gradient = dx if decoupled else _gradient(x, dx, decay)
    mean, square_mean = _running_mean(m, beta1, gradient), _running_mean(v, beta2, gradient * gradient)
    states = [mean, square_mean] if v_max is None else [mean, square_mean, meta.maximum(v_max, square_mean)]
    bound = states[-1]
    if step is not None:
        mean, bound = mean / _correction(beta1, step, x), bound / _correction(beta2, step, x)
    value = _decayed(x, decay, x * (1 - rate * decay), x) if decoupled else x
    return value - rate * (mean / (meta.sqrt(bound) + eps)), *states


@decomposition("adagrad")
def adagrad(
    x: Tensor, dx: Tensor, total: Tensor, learning_rate: _Number, eps: _Number, weight_decay: _Number
) -> tuple[Any, ...]:
    dx, total, rate, eps, decay = _in_dtype(x, dx, total, learning_rate, eps, weight_decay)
    gradient = _gradient(x, dx, decay)
    new_total = total + gradient * gradient
    return x - rate * gradient / (meta.sqrt(new_total) + eps), new_total


@decomposition("rmsprop")
def rmsprop(x: Tensor, dx: Tensor, v: Tensor, velocity: Tensor, *numbers: Any) -> tuple[Any, ...]:
    return rmsprop_centered(x, dx, v, velocity, None, *numbers)


@decomposition("rmsprop_centered")
def rmsprop_centered(
    x: Tensor, dx: Tensor, v: Tensor, velocity: Tensor, m: Tensor | None, learning_rate: _Number, alpha: _Number,
    eps: _Number, weight_decay: _Number, momentum: _Number,
) -> tuple[Any, ...]:  # fmt: skip
    dx, v, velocity, m, rate, eps, decay, momentum = _in_dtype(
        x, dx, v, velocity, m, learning_rate, eps, weight_decay, momentum
    )
    gradient = _gradient(x, dx, decay)
    square_mean = _running_mean(v, alpha, gradient * gradient)
    means = [] if m is None else [_running_mean(m, alpha, gradient)]
    variance = square_mean - means[0] * means[0] if means else square_mean
    moved = momentum * velocity + gradient / (meta.sqrt(variance) + eps)
    return x - rate * moved, square_mean, moved, *means
