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
    """The second derivative: 0 above zero; below, it equals the first."""
    return meta.where(x > 0, 0.0, meta.elu_dx(x, dz * dy, alpha))


def gelu_dx_x(x: Tensor, dy: Tensor, approximate: str, dz: Tensor) -> Tensor:
    """The second derivative: density(x) * (2 - x**2), or its counterpart for the tanh form."""
    if approximate == "none":
        density = meta.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return dz * dy * density * (2.0 - x * x)
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = x * x
    t = meta.tanh((squared * cubic + 1.0) * x * scale)
    slope = (squared * (3 * cubic) + 1.0) * scale
    second_slope = x * (6 * cubic * scale)
    # With u the argument of tanh: (x / 2) (1 + tanh u) has the second derivative
    # (1 - t**2) (u' + x (u'' - 2 t u'**2) / 2).
    return dz * dy * (1.0 - t * t) * (slope + x * (second_slope - t * slope * slope * 2.0) * 0.5)


def silu_dx_x(x: Tensor, dy: Tensor, dz: Tensor) -> Tensor:
    """The second derivative: s (1 - s) (2 + x (1 - 2 s)), s = sigmoid(x)."""
    s = meta.sigmoid(x)
    return dz * dy * s * (1.0 - s) * (2.0 + x * (1.0 - s * 2.0))


def softplus_grad(x: Tensor, beta: float, threshold: float | None, dy: Tensor) -> Tensor:
    """dy * sigmoid(beta x); dy where beta x exceeds the threshold."""
    scaled = x * beta
    slope = dy * meta.sigmoid(scaled)
    return slope if threshold is None else meta.where(meta.greater(scaled, threshold), dy, slope)


def logit_grad(x: Tensor, eps: float | None, dy: Tensor) -> Tensor:
    """dy / (x (1 - x)); NaN outside of [0, 1], or 0 outside of [eps, 1 - eps]."""
    product = x * (1.0 - x)
    if eps is None:  # the product is negative outside
        return meta.where(meta.greater_equal(product, 0.0), dy / product, math.nan)
    is_inside = meta.logical_and(meta.greater_equal(x, eps), meta.less_equal(x, 1.0 - eps))
    return meta.where(is_inside, dy / meta.where(is_inside, product, 1.0), 0.0)


def sinc_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dy (cos(pi x) - sinc(x)) / x; 0 at 0."""
    is_zero = meta.equal(x, 0)
    return meta.where(is_zero, 0.0, dy * (meta.cos(x * math.pi) - y) / meta.where(is_zero, 1.0, x))
