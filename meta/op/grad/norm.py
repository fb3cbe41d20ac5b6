"""Gradients of normalisations."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import product
from meta.ir.type import TensorType
from meta.op.grad.support import fit, share_of

__all__ = ["parameter_grad", "scaled"]
_Ints = tuple[int, ...]


def broadcast_parameter(value: Tensor, shape: Any, axes: _Ints) -> Tensor:
    """A parameter over `axes`, reshaped to broadcast against a tensor of `shape`."""
    return meta.reshape(value, tuple(d if a in axes else 1 for a, d in enumerate(shape)))


def sum_over(value: Tensor, axes: _Ints) -> Tensor:
    return meta.sum(value, axes) if axes else value


def layer_norm_parameters(
    x: Tensor, scale: TensorType | None, bias: TensorType | None, axis: _Ints, eps: float, dy: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients with respect to scale and bias, in their dtypes."""
    dscale, dbias = meta.layer_norm_dwb(x, dy, axis, eps)
    return _fit_parameter(dscale, scale), _fit_parameter(dbias, bias)


def _fit_parameter(gradient: Tensor, parameter: Tensor | TensorType | None) -> Tensor | None:
    """The gradient of a parameter that may be absent, in its dtype."""
    return None if parameter is None else fit(gradient, parameter)


def scaled(x: Tensor, scale: Tensor | None, axis: _Ints) -> Tensor:
    """x times a parameter of the shape of the axes `axis`, or x without one."""
    return x if scale is None else x * broadcast_parameter(scale, x.shape, split_axes(axis, x.ndim)[0])


def parameter_grad(terms: Tensor, parameter: Tensor | TensorType | None, axis: _Ints) -> Tensor | None:
    """The gradient of a parameter of the shape of the axes `axis`: the sum of `terms` over the other axes."""
    return None if parameter is None else fit(sum_over(terms, split_axes(axis, terms.ndim)[1]), parameter)


def split_axes(axis: _Ints, ndim: int) -> tuple[_Ints, _Ints]:
    """The normalised axes and the others."""
    axes = tuple(sorted(a % ndim for a in axis))
    return axes, tuple(a for a in range(ndim) if a not in axes)


def layer_norm_dx_dx(x: Tensor, scale: Tensor, dy: Tensor, axis: _Ints, eps: float, dz: Tensor) -> Tensor:
    """With x' = (x - mean) r, r = 1 / deviation, P(v) = v - mean(v) - x' mean(v x') and g = scale * dy, layer_norm_dx
    is r P(g). The derivative of <dz, r P(g)> goes through r (dr/dx = -r^2 x' / n) and through x' (dx'/dx = r P):
    -r (u mean(g x') + v mean(dz x') + x' mean(dz v)), where u = r P(dz) and v = r P(g)."""
    axes, _ = split_axes(axis, x.ndim)
    normalised, g = meta.layer_norm(x, None, None, axis, eps), scaled(dy, scale, axis)
    u = meta.layer_norm_dx(x, None, dz, axis, eps)
    v = meta.layer_norm_dx(x, scale, dy, axis, eps)
    r = meta.rsqrt(meta.var(x, axes, 0, True) + eps)
    total = u * _mean(g * normalised, axes) + v * _mean(dz * normalised, axes) + normalised * _mean(dz * v, axes)
    return fit(-(r * total), x)


def layer_norm_dxwb_grad(
    x: Tensor, scale: Tensor, dy: Tensor, axis: _Ints, eps: float, dz_0: Tensor, dz_1: Tensor, dz_2: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Partial derivatives of <dz_0, dx> + <dz_1, dscale> + <dz_2, dbias>: the sums of the derivatives of layer_norm_dx
    and layer_norm_dwb."""
    u = meta.layer_norm_dx(x, None, dz_0, axis, eps)
    dx = layer_norm_dx_dx(x, scale, dy, axis, eps, dz_0) + meta.layer_norm_dx(x, dz_1, dy, axis, eps)
    ddy = scaled(u, scale, axis) + meta.layer_norm(x, dz_1, dz_2, axis, eps)
    return fit(dx, x), parameter_grad(dy * u, scale, axis), fit(ddy, dy)


def layer_norm_train_grad(
    x: Tensor, scale: Tensor, bias: TensorType | None, axis: _Ints, y_1: Tensor, y_2: Tensor, dy_0: Tensor,
    dy_1: Tensor | None, dy_2: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients with respect to x, scale and bias. The results y_1 (mean) and y_2 (invstd) have gradients in second
    order only: d mean / dx = 1 / n, and d invstd / dx = -invstd^3 (x - mean) / n."""
    dx, dscale, dbias = meta.layer_norm_train_dxwb(dy_0, x, scale, y_1, y_2, axis)
    share = share_of(product(x.shape[a] for a in split_axes(axis, x.ndim)[0]), y_1)
    if dy_1 is not None:
        dx = dx + dy_1 * share
    if dy_2 is not None:
        dx = dx - (x - y_1) * (dy_2 * y_2 * y_2 * y_2 * share)
    return fit(dx, x), _fit_parameter(dscale, scale), _fit_parameter(dbias, bias)


def layer_norm_train_dxwb_grad(
    dy: Tensor, x: Tensor, scale: Tensor | None, mean: Tensor, invstd: Tensor, axis: _Ints, dz_0: Tensor,
    dz_1: Tensor, dz_2: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """Partial derivatives of L = <dz_0, dx> + <dz_1, dscale> + <dz_2, dbias>, where x' = (x - mean) r, g = scale * dy,
    dx = r (g - mean(g) - x' mean(g x')), dscale = sum(dy x') and dbias = sum(dy)."""
    axes, _ = split_axes(axis, x.ndim)
    normalised, g = (x - mean) * invstd, scaled(dy, scale, axis)
    through_x = _mean(dz_0 * normalised, axes)
    to_g = invstd * (dz_0 - _mean(dz_0, axes) - normalised * through_x)
    by_row = broadcast_parameter(dz_1, x.shape, axes)
    to_normalised = dy * by_row - invstd * (dz_0 * _mean(g * normalised, axes) + g * through_x)
    to_x = to_normalised * invstd
    return (
        fit(scaled(to_g, scale, axis) + normalised * by_row + broadcast_parameter(dz_2, x.shape, axes), dy),
        fit(to_x, x),
        parameter_grad(dy * to_g, scale, axis),
        fit(-meta.sum(to_x, axes, True), mean),
        fit(meta.sum((to_g * g + to_normalised * normalised) / invstd, axes, True), invstd),
    )


def _mean(value: Tensor, axes: _Ints) -> Tensor:
    return meta.mean(value, axes, True)


def split_channel(axis: int, ndim: int) -> tuple[_Ints, _Ints]:
    """The axis of channels and the others."""
    return (axis % ndim,), tuple(a for a in range(ndim) if a != axis % ndim)


def batch_norm_train_grad(
    x: Tensor, w: Tensor, b: TensorType | None, axis: int, y_3: Tensor, y_4: Tensor, dy_0: Tensor,
    dy_3: Tensor | None, dy_4: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients with respect to x, w and b. The results y_3 (mean) and y_4 (invstd) have gradients in
    second order only."""
    dx, dw, db = meta.batch_norm_train_dxwb(dy_0, x, w, y_3, y_4, axis)
    if dy_3 is not None:
        dx = dx + _through_mean(x, axis, dy_3)
    if dy_4 is not None:
        dx = dx + _through_invstd(x, axis, y_3, y_4, dy_4)
    return fit(dx, x), _fit_parameter(dw, w), _fit_parameter(db, b)


def _through_mean(x: Tensor, axis: int, dmean: Tensor) -> Tensor:
    """The gradient with respect to x through the mean of each channel; broadcasts against x."""
    channel, others = split_channel(axis, x.ndim)
    return broadcast_parameter(dmean * share_of(product(x.shape[a] for a in others), dmean), x.shape, channel)


def _through_variance(x: Tensor, axis: int, mean: Tensor, dvariance: Tensor) -> Tensor:
    """The gradient with respect to x through the variance: d variance / dx = 2 (x - mean) / number."""
    channel, others = split_channel(axis, x.ndim)
    factor = dvariance * 2.0 * share_of(product(x.shape[a] for a in others), dvariance)
    return (x - broadcast_parameter(mean, x.shape, channel)) * broadcast_parameter(factor, x.shape, channel)


def _through_invstd(x: Tensor, axis: int, mean: Tensor, invstd: Tensor, dinvstd: Tensor) -> Tensor:
    """The gradient with respect to x through invstd: d invstd / d variance = -invstd^3 / 2."""
    return _through_variance(x, axis, mean, dinvstd * invstd * invstd * invstd * -0.5)


def batch_norm_stats_grad(
    x: Tensor, axis: int, y_0: Tensor, y_2: Tensor, dy_0: Tensor, dy_1: Tensor, dy_2: Tensor
) -> Tensor:
    """The gradient with respect to x, through mean (0), variance (1) and invstd (2)."""
    through_deviation = _through_variance(x, axis, y_0, dy_1) + _through_invstd(x, axis, y_0, y_2, dy_2)
    return fit(_through_mean(x, axis, dy_0) + through_deviation, x)


def batch_norm_sums_grad(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, axis: int, dz_0: Tensor, dz_1: Tensor
) -> tuple[Tensor, ...]:
    """Partial derivatives of <dz_0, sum(dy x')> + <dz_1, sum(dy)>, where x' = (x - mean) invstd."""
    channel, others = split_channel(axis, x.ndim)

    def broadcast(value: Tensor) -> Tensor:
        return broadcast_parameter(value, x.shape, channel)

    difference, scaled_dy = x - broadcast(mean), dy * broadcast(dz_0)
    dx = scaled_dy * broadcast(invstd)
    return (
        fit(difference * broadcast(invstd * dz_0) + broadcast(dz_1), dy),
        fit(dx, x),
        fit(-sum_over(dx, others), mean),
        fit(sum_over(scaled_dy * difference, others), invstd),
    )


def batch_norm_train_dxwb_grad(
    dy: Tensor, x: Tensor, w: Tensor | None, mean: Tensor, invstd: Tensor, axis: int, z_1: Tensor, z_2: Tensor,
    dz_0: Tensor, dz_1: Tensor, dz_2: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """Partial derivatives of L = <dz_0, dx> + <dz_1, dw> + <dz_2, db>, where x' = (x - mean) invstd, dw = sum(dy x'),
    db = sum(dy), and dx = w invstd (dy - (db + x' dw) / n):
    <dz_0, dx> = w invstd (sum(dz_0 dy) - (db sum(dz_0) + dw sum(dz_0 x')) / n)."""
    channel, others = split_channel(axis, x.ndim)
    share = share_of(product(x.shape[a] for a in others), invstd)

    def broadcast(value: Tensor) -> Tensor:
        return broadcast_parameter(value, x.shape, channel)

    normalised = (x - broadcast(mean)) * broadcast(invstd)
    gain = invstd if w is None else invstd * w
    a, b, c = sum_over(dz_0 * dy, others), sum_over(dz_0, others), sum_over(dz_0 * normalised, others)
    inner = a - (z_2 * b + z_1 * c) * share
    to_dw, to_db, to_c = dz_1 - gain * c * share, dz_2 - gain * b * share, -(gain * z_1 * share)
    to_normalised = broadcast(to_dw) * dy + broadcast(to_c) * dz_0
    ddy = dz_0 * broadcast(gain) + normalised * broadcast(to_dw) + broadcast(to_db)
    dmean = -(invstd * sum_over(to_normalised, others))
    dinvstd = (to_dw * z_1 + to_c * c) / invstd + (inner if w is None else inner * w)
    return (
        fit(ddy, dy),
        fit(to_normalised * broadcast(invstd), x),
        _fit_parameter(inner * invstd, w),
        fit(dmean, mean),
        fit(dinvstd, invstd),
    )


def batch_norm_infer_grad(
    needs: tuple[bool, ...], x: Tensor, running_mean: Tensor, running_var: Tensor, w: Tensor | None,
    b: TensorType | None, eps: float, axis: int, dy: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients with respect to x, w and b; the statistics are constants."""
    channel, others = split_channel(axis, x.ndim)
    invstd = meta.rsqrt(running_var + eps) if needs[0] or needs[1] else None
    dx = dw = db = None
    if needs[0] and invstd is not None:
        dx = fit(dy * broadcast_parameter(invstd if w is None else invstd * w, x.shape, channel), x)
    if needs[1] and w is not None and invstd is not None:
        dw = fit(sum_over(dy * (x - broadcast_parameter(running_mean, x.shape, channel)), others) * invstd, w)
    if needs[2] and b is not None:
        db = fit(sum_over(dy, others), b)
    return dx, dw, db
