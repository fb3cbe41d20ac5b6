"""TE computes of optimiser steps.

Results overwrite the memory of arguments, so each argument element is read before or by the block that overwrites it:
first the states, then the parameter, computed from the new states.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.numbers import log
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import cast, const, element, is_number, select
from meta.backend.tvm.te.precision import accumulation_dtype
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

Expr = Any


@compute("sgd", lift=("momentum", "weight_decay"), constants=(0,))
def sgd(
    x: Any, dx: Any, v: Any, learning_rate: Any, momentum: Any, weight_decay: Any, nesterov: bool, *, out: Any
) -> Any:
    dtype = accumulation_dtype(out[0].dtype)
    factor, decay = element(momentum, (), dtype), element(weight_decay, (), dtype)

    def gradient(i: tuple[Any, ...]) -> Expr:
        grad = element(dx, i, dtype)
        if is_number(weight_decay) and weight_decay == 0:
            return grad
        decayed = grad + decay * element(x, i, dtype)
        # 0 * x is not 0 for infinities.
        return decayed if is_number(weight_decay) else select(tirx.EQ(decay, const(decay, 0)), grad, decayed)

    def velocity(*i: Any) -> Expr:
        return cast(factor * element(v, i, dtype) + gradient(i), out[1].dtype)

    new_velocity = te.compute(x.shape, velocity, "sgd_v")

    def parameter(*i: Any) -> Expr:
        step = element(new_velocity, i, dtype)
        if nesterov:
            step = gradient(i) + factor * step
        return cast(element(x, i, dtype) - element(learning_rate, (), dtype) * step, out[0].dtype)

    return te.compute(x.shape, parameter, "sgd_x"), new_velocity


@compute("adam", constants=(0,))
def adam(
    x: Any, dx: Any, m: Any, v: Any, step: Any, learning_rate: Any, beta1: float, beta2: float, eps: float,
    weight_decay: float, decoupled: bool, *, out: Any,
) -> Any:  # fmt: skip
    dtype = accumulation_dtype(out[0].dtype)
    rate = element(learning_rate, (), dtype)

    def gradient(i: tuple[Any, ...]) -> Expr:
        grad = element(dx, i, dtype)
        return grad + const(grad, weight_decay) * element(x, i, dtype) if weight_decay and not decoupled else grad

    def blend(state: Any, beta: float, value: Expr, i: tuple[Any, ...]) -> Expr:
        return const(value, beta) * element(state, i, dtype) + const(value, 1 - beta) * value

    def squared_gradient(i: tuple[Any, ...]) -> Expr:
        grad = gradient(i)
        return grad * grad

    new_mean = te.compute(x.shape, lambda *i: cast(blend(m, beta1, gradient(i), i), out[1].dtype), "adam_m")
    new_square_mean = te.compute(
        x.shape, lambda *i: cast(blend(v, beta2, squared_gradient(i), i), out[2].dtype), "adam_v"
    )

    def parameter(*i: Any) -> Expr:
        value = element(x, i, dtype)
        if weight_decay and decoupled:
            value = value * (const(value, 1) - rate * const(value, weight_decay))
        step_count = element(step, (), dtype)
        root = tirx.sqrt(element(new_square_mean, i, dtype) / _bias_correction(beta2, step_count))
        change = element(new_mean, i, dtype) / _bias_correction(beta1, step_count) / (root + const(value, eps))
        return cast(value - rate * change, out[0].dtype)

    return te.compute(x.shape, parameter, "adam_x"), new_mean, new_square_mean


def _bias_correction(beta: float, step: Expr) -> Expr:
    """1 - beta**step: a running mean that started at 0 is divided by it."""
    if beta == 0:
        return const(step, 1)
    return -te_math.expm1(step * const(step, log(beta)))
