"""Gradients of elementwise operators of one tensor."""

from __future__ import annotations

import math

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex


def abs_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy * sign(x)."""
    return dy * (meta.sgn(x) if is_complex(x.dtype) else meta.sign(x))


def elu_dx_x(x: Tensor, dy: Tensor, alpha: float, dz: Tensor) -> Tensor:
    """The second derivative: 0 from zero on; below, it equals the first."""
    return meta.where(x >= 0, 0.0, meta.elu_dx(x, dz * dy, alpha))


def gelu_dx_x(x: Tensor, dy: Tensor, approximate: str, dz: Tensor) -> Tensor:
    """The second derivative: density(x) * (2 - x**2), or its counterpart for the tanh form."""
    if approximate == "none":
        density = meta.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return dz * dy * (density * 2.0 - density * x * x)
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    limit = 30.0 if x.dtype == "float64" else 12.0
    x = meta.clip(x, -limit, limit)  # farther, the derivative is 0 in the dtype, but its factors overflow
    squared = x * x
    u = (squared * cubic + 1.0) * x * scale
    slope = (squared * (3 * cubic) + 1.0) * scale
    second_slope = x * (6 * cubic * scale)
    # x sigmoid(2 u) has the second derivative 2 s (2 u' + x (u'' - 2 tanh(u) u'**2)), s = sigmoid(2 u) sigmoid(-2 u).
    both_tails = meta.softplus_dx(u * 2.0, meta.sigmoid(u * -2.0))
    return dz * dy * both_tails * (slope * 2.0 + x * (second_slope - meta.tanh(u) * slope * slope * 2.0)) * 2.0


def silu_dx_x(x: Tensor, dy: Tensor, dz: Tensor) -> Tensor:
    """The second derivative: s (1 - s) (2 + x (1 - 2 s)), s = sigmoid(x)."""
    s = meta.sigmoid(x)
    return dz * dy * s * meta.sigmoid(-x) * (2.0 + x * (1.0 - s * 2.0))


def softplus_grad(x: Tensor, beta: float, threshold: float | None, dy: Tensor) -> Tensor:
    """dy * sigmoid(beta x); dy where beta x exceeds the threshold."""
    scaled = x * beta
    if threshold is None:
        return meta.softplus_dx(scaled, dy)
    slope = meta.softplus_dx(meta.where(meta.greater_equal(scaled, threshold), threshold, scaled), dy)
    return meta.where(meta.greater(scaled, threshold), dy, slope)


def logit_grad(x: Tensor, eps: float | None, dy: Tensor) -> Tensor:
    """dy / (x (1 - x)); NaN outside of [0, 1], or 0 outside of [eps, 1 - eps]."""
    product = x * (1.0 - x)
    if eps is None:  # the product is negative outside
        return meta.where(meta.greater_equal(product, 0.0), dy / product, math.nan)
    is_inside = meta.logical_and(meta.greater_equal(x, eps), meta.less_equal(x, 1.0 - eps))
    return meta.where(is_inside, dy / meta.where(is_inside, product, 1.0), 0.0)


def sinc_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dy (cos(pi x) - sinc(x)) / x, the cosine of the distance from an even number; near 0, where the difference
    cancels, its series."""
    is_near = meta.less(meta.abs(x), 0.25)
    square = meta.square(meta.where(is_near, x, 0.0))
    series = meta.full_like(x, 0.0)
    for k in range(8, -1, -1):
        series = series * square + (-1) ** (k + 1) * (2 * k + 2) * math.pi ** (2 * k + 2) / math.factorial(2 * k + 3)
    far = meta.where(is_near, 1.0, x)
    turn = far - meta.round(far * 0.5) * 2.0
    return dy * meta.where(is_near, series * x, (meta.cos(turn * math.pi) - meta.where(is_near, 0.0, y)) / far)
