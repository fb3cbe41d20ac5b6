"""TE computes of optimiser steps.

Results overwrite the memory of arguments, so each argument element is read before or by the block that overwrites it:
first the states, then the parameter, computed from the new states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.numbers import log
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import Operand, accumulation_dtype, cast, const, element, is_nan, is_number, select
from meta.backend.tvm.workarounds.exact import constant
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("sgd", lift=("momentum", "weight_decay"), constants=(0,))
def sgd(
    x: Tensor, dx: Operand, v: Operand, learning_rate: Operand, momentum: Operand, weight_decay: Operand,
    nesterov: bool, *, out: Outs,
) -> Any:  # fmt: skip
    dtype = accumulation_dtype(out[0].dtype)
    factor = element(momentum, (), dtype)
    gradient = _gradient(x, dx, weight_decay, dtype)

    def velocity(*i: Expr) -> Expr:
        return cast(factor * element(v, i, dtype) + gradient(i), out[1].dtype)

    new_velocity = te.compute(x.shape, velocity, "sgd_v")

    def parameter(*i: Expr) -> Expr:
        step = element(new_velocity, i, dtype)
        if nesterov:
            step = gradient(i) + factor * step
        return cast(element(x, i, dtype) - element(learning_rate, (), dtype) * step, out[0].dtype)

    return te.compute(x.shape, parameter, "sgd_x"), new_velocity


@compute("adam", lift=("beta1", "beta2", "eps", "weight_decay"), constants=(0,))
def adam(x: Tensor, dx: Operand, m: Tensor, v: Tensor, *numbers: Any, out: Outs) -> Any:
    return _adam(x, dx, m, v, None, *numbers, out=out)


@compute("amsgrad", lift=("beta1", "beta2", "eps", "weight_decay"), constants=(0,))
def amsgrad(x: Tensor, dx: Operand, m: Tensor, v: Tensor, v_max: Operand, *numbers: Any, out: Outs) -> Any:
    return _adam(x, dx, m, v, v_max, *numbers, out=out)


def _adam(
    x: Tensor, dx: Operand, m: Tensor, v: Tensor, v_max: Operand | None, step: Operand | None, learning_rate: Operand,
    beta1: Operand, beta2: Operand, eps: Operand, weight_decay: Operand, decoupled: bool, *, out: Outs,
) -> Any:  # fmt: skip
    dtype = accumulation_dtype(out[0].dtype)
    rate, decay = element(learning_rate, (), dtype), element(weight_decay, (), dtype)
    gradient = _gradient(x, dx, 0 if decoupled else weight_decay, dtype)
    new_mean = _running_mean("adam_m", m, beta1, gradient, out[1].dtype, dtype)
    new_square_mean = _running_mean("adam_v", v, beta2, _squared(gradient), out[2].dtype, dtype)
    states = [new_mean, new_square_mean]
    if v_max is not None:

        def largest(*i: Expr) -> Expr:
            old, new = element(v_max, i, dtype), element(new_square_mean, i, dtype)
            return cast(select(tirx.Or(old >= new, is_nan(old)), old, new), out[3].dtype)

        states.append(te.compute(x.shape, largest, "adam_v_max"))

    def parameter(*i: Expr) -> Expr:
        value = element(x, i, dtype)
        if decoupled and not (is_number(weight_decay) and weight_decay == 0):
            value = _where_nonzero(weight_decay, decay, value * (const(value, 1) - rate * decay), value)
        mean, bound = element(new_mean, i, dtype), element(states[-1], i, dtype)
        if step is not None:
            mean, bound = mean / _correction(beta1, step, dtype), bound / _correction(beta2, step, dtype)
        change = mean / (tirx.sqrt(bound) + element(eps, (), dtype))
        return cast(value - rate * change, out[0].dtype)

    return te.compute(x.shape, parameter, "adam_x"), *states


@compute("adagrad", lift=("eps", "weight_decay"), constants=(0,))
def adagrad(
    x: Tensor, dx: Operand, total: Operand, learning_rate: Operand, eps: Operand, weight_decay: Operand, *, out: Outs
) -> Any:
    dtype = accumulation_dtype(out[0].dtype)
    gradient = _gradient(x, dx, weight_decay, dtype)
    squared = _squared(gradient)
    new_total = te.compute(
        x.shape, lambda *i: cast(element(total, i, dtype) + squared(i), out[1].dtype), "adagrad_total"
    )

    def parameter(*i: Expr) -> Expr:
        root = tirx.sqrt(element(new_total, i, dtype)) + element(eps, (), dtype)
        return cast(element(x, i, dtype) - element(learning_rate, (), dtype) * gradient(i) / root, out[0].dtype)

    return te.compute(x.shape, parameter, "adagrad_x"), new_total


@compute("rmsprop", lift=("alpha", "eps", "weight_decay", "momentum"), constants=(0,))
def rmsprop(x: Tensor, dx: Operand, v: Tensor, velocity: Operand, *numbers: Any, out: Outs) -> Any:
    return _rmsprop(x, dx, v, velocity, None, *numbers, out=out)


@compute("rmsprop_centered", lift=("alpha", "eps", "weight_decay", "momentum"), constants=(0,))
def rmsprop_centered(x: Tensor, dx: Operand, v: Tensor, velocity: Operand, m: Tensor, *numbers: Any, out: Outs) -> Any:
    return _rmsprop(x, dx, v, velocity, m, *numbers, out=out)


def _rmsprop(
    x: Tensor, dx: Operand, v: Tensor, velocity: Operand, m: Tensor | None, learning_rate: Operand, alpha: Operand,
    eps: Operand, weight_decay: Operand, momentum: Operand, *, out: Outs,
) -> Any:  # fmt: skip
    dtype = accumulation_dtype(out[0].dtype)
    gradient = _gradient(x, dx, weight_decay, dtype)
    new_square_mean = _running_mean("rmsprop_v", v, alpha, _squared(gradient), out[1].dtype, dtype)
    means = [] if m is None else [_running_mean("rmsprop_m", m, alpha, gradient, out[3].dtype, dtype)]

    def new_velocity(*i: Expr) -> Expr:
        variance = element(new_square_mean, i, dtype)
        for mean in means:
            variance = variance - element(mean, i, dtype) * element(mean, i, dtype)
        change = gradient(i) / (tirx.sqrt(variance) + element(eps, (), dtype))
        return cast(element(momentum, (), dtype) * element(velocity, i, dtype) + change, out[2].dtype)

    moved = te.compute(x.shape, new_velocity, "rmsprop_velocity")

    def parameter(*i: Expr) -> Expr:
        return cast(element(x, i, dtype) - element(learning_rate, (), dtype) * element(moved, i, dtype), out[0].dtype)

    return te.compute(x.shape, parameter, "rmsprop_x"), new_square_mean, moved, *means


def _gradient(x: Operand, dx: Operand, weight_decay: Operand, dtype: str) -> Callable[[tuple[Any, ...]], Expr]:
    """dx + weight_decay * x, by element."""
    decay = element(weight_decay, (), dtype)

    def gradient(i: tuple[Any, ...]) -> Expr:
        grad = element(dx, i, dtype)
        if is_number(weight_decay) and weight_decay == 0:
            return grad
        return _where_nonzero(weight_decay, decay, grad + decay * element(x, i, dtype), grad)

    return gradient


def _squared(value: Callable[[tuple[Any, ...]], Expr]) -> Callable[[tuple[Any, ...]], Expr]:
    def squared(i: tuple[Any, ...]) -> Expr:
        once = value(i)
        return once * once

    return squared


def _running_mean(
    name: str, state: Tensor, beta: Any, value: Callable[[tuple[Any, ...]], Expr], stored: str, dtype: str
) -> Any:
    """beta * state + (1 - beta) * value."""
    factor, rest = element(beta, (), dtype), _complement(beta, dtype)
    return te.compute(state.shape, lambda *i: cast(factor * element(state, i, dtype) + rest * value(i), stored), name)


def _where_nonzero(decay: Any, value: Expr, decayed: Expr, plain: Expr) -> Expr:
    """`decayed`, or `plain` if the decay is a tensor that holds 0: 0 * x is not 0 for infinities."""
    return decayed if is_number(decay) else select(tirx.EQ(value, const(value, 0)), plain, decayed)


def _complement(beta: Any, dtype: str) -> Expr:
    """1 - beta, which has few digits in float32: the difference is rounded, and not beta."""
    if is_number(beta):
        return constant(1 - beta, dtype)
    return cast(tirx.const(1, "float64") - element(beta, (), "float64"), dtype)


def _correction(beta: Any, step: Operand, dtype: str) -> Expr:
    """1 - beta**step: a running mean that started at 0 is divided by it."""
    if not is_number(beta):
        power = tirx.pow(element(beta, (), "float64"), element(step, (), "float64"))
        return cast(tirx.const(1, "float64") - power, dtype)
    if beta == 0:
        return constant(1, dtype)
    return -te_math.expm1(element(step, (), dtype) * constant(log(beta), dtype))
