"""TE computes of activations."""

from __future__ import annotations

from collections.abc import Callable

from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import clamp, const, let, select, softplus
from meta.op.dialect.tvm import Registrar

elementwise = Registrar(__file__).elementwise


def hardsigmoid(x: Expr) -> Expr:
    return clamp(x + const(x, 3), 0, 6) / const(x, 6)


def hardsigmoid_dx(x: Expr, dy: Expr) -> Expr:
    return select(tirx.abs(x) < const(x, 3), dy / const(x, 6), const(x, 0))


def hardswish_dx(x: Expr, dy: Expr) -> Expr:
    inner = dy * (x / const(x, 3) + const(x, 0.5))
    return select(x <= const(x, -3), const(x, 0), select(x >= const(x, 3), dy, inner))


def hardtanh_dx(x: Expr, dy: Expr, low: float, high: float) -> Expr:
    return select(tirx.And(x > const(x, low), x < const(x, high)), dy, const(x, 0))


def mish(x: Expr) -> Expr:
    """x n / (n + 2) with n = e**x (e**x + 2), since tanh(log(1 + e**x)) = ((1 + e**x)**2 - 1) / ((1 + e**x)**2 + 1).

    From 20 on, the factor is 1 in every dtype."""
    two = const(x, 2)

    def of_exp(e: Expr) -> Expr:
        return let(e * (e + two), lambda n: x * (n / (n + two)))

    return select(x > const(x, 20), x, let(te_math.exp(clamp(x, -1e4, 20)), of_exp))


def selu(x: Expr) -> Expr:
    selu_scale = 1.0507009873554804934193349852946
    selu_alpha = 1.6732632423543772848170429916717
    return const(x, selu_scale) * select(x > const(x, 0), x, const(x, selu_alpha) * te_math.expm1(x))


def softshrink(x: Expr, lambd: float) -> Expr:
    limit = const(x, lambd)
    # x * 0 keeps NaN, for which both comparisons are false.
    return select(x > limit, x - limit, select(x < -limit, x + limit, x * const(x, 0)))


def hardshrink(x: Expr, lambd: float) -> Expr:
    return select(tirx.And(x >= -const(x, lambd), x <= const(x, lambd)), const(x, 0), x)


def tanhshrink(x: Expr) -> Expr:
    """x - tanh(x); near 0, where the difference cancels, the series."""
    # The series of (x - tanh(x)) / x**3 in x**2.
    tanh_tail = (1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925, -21844 / 6081075)

    def near(square: Expr) -> Expr:
        value = const(x, tanh_tail[-1])
        for coefficient in reversed(tanh_tail[:-1]):
            value = value * square + const(x, coefficient)
        return value * square * x

    return select(tirx.abs(x) < const(x, 0.05), let(x * x, near), x - te_math.tanh(x))


def _table() -> dict[str, Callable[..., Expr]]:
    return {
        "hardsigmoid": hardsigmoid,
        "hardswish": lambda x: x * hardsigmoid(x),
        "hardtanh": clamp,
        "hardsigmoid_dx": hardsigmoid_dx,
        "hardswish_dx": hardswish_dx,
        "hardtanh_dx": hardtanh_dx,
        "logsigmoid": lambda x: -softplus(-x),
        "mish": mish,
        "selu": selu,
        "softshrink": softshrink,
        "softsign": lambda x: x / (const(x, 1) + tirx.abs(x)),
        "tanhshrink": tanhshrink,
    }


elementwise(_table())
elementwise({"hardshrink": hardshrink}, bounds=True)
