"""TE computes of optimiser steps.

Results take over the memory of arguments, so each element of those is read by the block that overwrites it, or before:
states first, then the parameter, from the new states.
"""

from __future__ import annotations

import math
from typing import Any

from meta.op.dialect.tvm import _math
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, const, element
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._register import compute

Expr = Any


@compute("sgd")
def sgd(
    x: Any, dx: Any, v: Any, learning_rate: Any, momentum: float, weight_decay: float, nesterov: bool, *, out: Any
) -> Any:
    kind = wide(out[0].dtype)

    def gradient(i: tuple[Any, ...]) -> Expr:
        slope = element(dx, i, kind)
        return slope + const(slope, weight_decay) * element(x, i, kind) if weight_decay else slope

    def velocity(*i: Any) -> Expr:
        kept = element(v, i, kind)
        return cast(const(kept, momentum) * kept + gradient(i), out[1].dtype)

    new = te.compute(x.shape, velocity, "sgd_v")

    def parameter(*i: Any) -> Expr:
        step = element(new, i, kind)
        if nesterov:
            step = gradient(i) + const(step, momentum) * step
        return cast(element(x, i, kind) - element(learning_rate, (), kind) * step, out[0].dtype)

    return te.compute(x.shape, parameter, "sgd_x"), new


@compute("adam")
def adam(
    x: Any, dx: Any, m: Any, v: Any, step: Any, learning_rate: Any, beta1: float, beta2: float, eps: float,
    weight_decay: float, decoupled: bool, *, out: Any,
) -> Any:  # fmt: skip
    kind = wide(out[0].dtype)
    rate = element(learning_rate, (), kind)

    def gradient(i: tuple[Any, ...]) -> Expr:
        slope = element(dx, i, kind)
        return slope + const(slope, weight_decay) * element(x, i, kind) if weight_decay and not decoupled else slope

    def mean(state: Any, beta: float, new: Expr, i: tuple[Any, ...]) -> Expr:
        return const(new, beta) * element(state, i, kind) + const(new, 1 - beta) * new

    def square(i: tuple[Any, ...]) -> Expr:
        slope = gradient(i)
        return slope * slope

    first = te.compute(x.shape, lambda *i: cast(mean(m, beta1, gradient(i), i), out[1].dtype), "adam_m")
    second = te.compute(x.shape, lambda *i: cast(mean(v, beta2, square(i), i), out[2].dtype), "adam_v")

    def parameter(*i: Any) -> Expr:
        value = element(x, i, kind)
        if weight_decay and decoupled:
            value = value * (const(value, 1) - rate * const(value, weight_decay))
        number = element(step, (), kind)
        root = tirx.sqrt(element(second, i, kind) / _bias(beta2, number))
        change = element(first, i, kind) / _bias(beta1, number) / (root + const(value, eps))
        return cast(value - rate * change, out[0].dtype)

    return te.compute(x.shape, parameter, "adam_x"), first, second


def _bias(beta: float, step: Expr) -> Expr:
    """1 - beta**step, by which a mean that started as 0 is too small."""
    if beta == 0:
        return const(step, 1)
    return -_math.expm1(step * const(step, math.log(beta)))
