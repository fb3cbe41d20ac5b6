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
from meta.backend.tvm.te.exact import constant
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
        return _where_nonzero(weight_decay, decay, grad + decay * element(x, i, dtype), grad)

    def velocity(*i: Any) -> Expr:
        return cast(factor * element(v, i, dtype) + gradient(i), out[1].dtype)

    new_velocity = te.compute(x.shape, velocity, "sgd_v")

    def parameter(*i: Any) -> Expr:
        step = element(new_velocity, i, dtype)
        if nesterov:
            step = gradient(i) + factor * step
        return cast(element(x, i, dtype) - element(learning_rate, (), dtype) * step, out[0].dtype)

    return te.compute(x.shape, parameter, "sgd_x"), new_velocity


@compute("adam", lift=("beta1", "beta2", "eps", "weight_decay"), constants=(0,))
def adam(
    x: Any, dx: Any, m: Any, v: Any, step: Any, learning_rate: Any, beta1: Any, beta2: Any, eps: Any,
    weight_decay: Any, decoupled: bool, *, out: Any,
) -> Any:  # fmt: skip
    dtype = accumulation_dtype(out[0].dtype)
    rate, decay = element(learning_rate, (), dtype), element(weight_decay, (), dtype)
    decays = not (is_number(weight_decay) and weight_decay == 0)

    def gradient(i: tuple[Any, ...]) -> Expr:
        grad = element(dx, i, dtype)
        if decoupled or not decays:
            return grad
        return _where_nonzero(weight_decay, decay, grad + decay * element(x, i, dtype), grad)

    def blend(state: Any, beta: Any, value: Expr, i: tuple[Any, ...]) -> Expr:
        return element(beta, (), dtype) * element(state, i, dtype) + _complement(beta, dtype) * value

    def squared_gradient(i: tuple[Any, ...]) -> Expr:
        grad = gradient(i)
        return grad * grad

    new_mean = te.compute(x.shape, lambda *i: cast(blend(m, beta1, gradient(i), i), out[1].dtype), "adam_m")
    new_square_mean = te.compute(
        x.shape, lambda *i: cast(blend(v, beta2, squared_gradient(i), i), out[2].dtype), "adam_v"
    )

    def parameter(*i: Any) -> Expr:
        value = element(x, i, dtype)
        if decoupled and decays:
            value = _where_nonzero(weight_decay, decay, value * (const(value, 1) - rate * decay), value)
        mean, square_mean = element(new_mean, i, dtype), element(new_square_mean, i, dtype)
        if step is not None:
            mean, square_mean = mean / _correction(beta1, step, dtype), square_mean / _correction(beta2, step, dtype)
        change = mean / (tirx.sqrt(square_mean) + element(eps, (), dtype))
        return cast(value - rate * change, out[0].dtype)

    return te.compute(x.shape, parameter, "adam_x"), new_mean, new_square_mean


def _where_nonzero(decay: Any, value: Expr, decayed: Expr, plain: Expr) -> Expr:
    """`decayed`, or `plain` if the decay is a tensor that holds 0: 0 * x is not 0 for infinities."""
    return decayed if is_number(decay) else select(tirx.EQ(value, const(value, 0)), plain, decayed)


def _complement(beta: Any, dtype: str) -> Expr:
    """1 - beta, which has few digits in float32: the difference is rounded, and not beta."""
    if is_number(beta):
        return constant(1 - beta, dtype)
    return cast(tirx.const(1, "float64") - element(beta, (), "float64"), dtype)


def _correction(beta: Any, step: Any, dtype: str) -> Expr:
    """1 - beta**step: a running mean that started at 0 is divided by it."""
    if not is_number(beta):
        power = tirx.pow(element(beta, (), "float64"), element(step, (), "float64"))
        return cast(tirx.const(1, "float64") - power, dtype)
    if beta == 0:
        return constant(1, dtype)
    return -te_math.expm1(element(step, (), dtype) * constant(log(beta), dtype))
