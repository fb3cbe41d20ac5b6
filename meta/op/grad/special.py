"""Gradients of special functions."""

from __future__ import annotations

import math

import meta
from meta._generated.methods import Tensor
from meta.dtype import largest
from meta.modes import modes
from meta.op.grad.support import fit, widen


def _wide(x: Tensor) -> Tensor:
    """x in float32 at least; in float64 in gradients that are recorded, whose own derivatives cancel twice."""
    if not modes.grad_enabled:
        return widen(x)
    return x if x.dtype == "float64" else meta.cast(x, "float64")


def i0e_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy (i1e(x) - sign(x) i0e(x))."""
    v = _wide(x)
    is_far, far = _far_gap(v)
    return fit(meta.where(is_far, -meta.sign(v) * far, meta.i1e(v) - meta.sign(v) * meta.i0e(v)) * dy, x)


def i1_grad(x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dy (i0(x) - i1(x) / x); infinity where both overflow."""
    v = widen(x)
    ratio = _i1_by_x(v, y if v is x else meta.i1(v), 1.0)
    return fit(dy * (meta.i0(v) - meta.minimum(ratio, largest(v.dtype))), x)


def i1e_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy (i0e(x) - i1e(x) (sign(x) + 1 / x))."""
    v = _wide(x)
    y = meta.i1e(v)
    is_far, far = _far_gap(v)
    slope = meta.where(is_far, far, meta.i0e(v) - y * meta.sign(v)) - _i1_by_x(v, y, meta.exp(-meta.abs(v)))
    return fit(slope * dy, x)


def _far_gap(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where x is large, and i0e(x) - |i1e(x)| there, which cancels, by the series of 1 - i1(x) / i0(x) in 1 / x."""
    size = meta.abs(x)
    start = 1000.0 if x.dtype == "float64" else 30.0
    is_far = meta.greater(size, start)
    inverse = 1.0 / meta.where(is_far, size, start)
    series = 0.0
    for coefficient in (13 / 32, 25 / 128, 1 / 8, 1 / 8, 1 / 2):
        series = (series + coefficient) * inverse
    return is_far, meta.i0e(x) * series


def _i1_by_x(x: Tensor, y: Tensor, scale: Tensor | float) -> Tensor:
    """y / x for y = scale * i1(x); near 0, where denormals have few digits, by the series of i1."""
    is_near = meta.less(meta.abs(x), 0.3)
    square = meta.square(meta.where(is_near, x, 0.0))
    series = meta.full_like(x, 0.0)
    for k in range(5, -1, -1):
        series = series * square + 0.5 / (4**k * math.factorial(k) * math.factorial(k + 1))
    series = series * scale
    return meta.where(is_near, series, y / meta.where(is_near, 1.0, x))


def log_ndtr_grad(x: Tensor, dy: Tensor) -> Tensor:
    """dy times the quotient of density and distribution function: below 0, where both underflow, by erfcx."""
    v = widen(x)
    is_low = meta.less(v, 0.0)
    low, high = meta.where(is_low, v, 0.0), meta.where(is_low, 0.0, v)
    below = math.sqrt(2 / math.pi) / meta.erfcx(low * -math.sqrt(0.5))
    above = meta.exp(high * high * -0.5) * (1 / math.sqrt(2 * math.pi)) / meta.ndtr(high)
    return fit(meta.where(is_low, below, above) * dy, x)
