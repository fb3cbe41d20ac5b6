"""Gradients of reductions."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim, product
from meta.ir.type import TensorType
from meta.modes import modes
from meta.op import rules
from meta.op.grad.support import at_least_one, widen


def keep_axes(value: Tensor, x: Tensor | TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> Tensor:
    """A reduced tensor with its reduced axes restored as size 1."""
    if keepdims or value.ndim == x.ndim:
        return value
    return meta.reshape(value, rules.reduced_shape(x.shape, axis, True))


def sum_grad(x: TensorType, axis: tuple[int, ...] | None, keepdims: bool, dy: Tensor) -> Tensor:
    """dy repeated over the reduced axes."""
    return meta.broadcast_to(keep_axes(dy, x, axis, keepdims), x.shape)


def mean_grad(x: TensorType, axis: tuple[int, ...] | None, keepdims: bool, dy: Tensor) -> Tensor:
    """dy repeated over the reduced axes, divided by the number of reduced elements."""
    cotangent = keep_axes(dy, x, axis, keepdims)
    share = widen(cotangent) / at_least_one(_count(x, axis), cotangent)
    return meta.broadcast_to(share if share.dtype == dy.dtype else meta.cast(share, dy.dtype), x.shape)


def _count(x: Tensor | TensorType, axis: tuple[int, ...] | None) -> Dim:
    """The number of elements reduced to one."""
    axes = rules.axis_indices(axis, x.ndim) if x.ndim else ()
    return product(x.shape[a] for a in axes)


def max_dx_dy(x: Tensor, y: Tensor, axis: tuple[int, ...] | None, keepdims: bool, dz: Tensor) -> Tensor:
    """The mean of dz over the elements equal to the maximum: the transpose of max_dx, which is linear in dy."""
    shares = meta.max_dx(x, y, meta.ones_like(y), axis, keepdims)
    return meta.sum(shares * dz, axis, keepdims)


def logsumexp_grad(x: Tensor, axis: tuple[int, ...] | None, keepdims: bool, y: Tensor, dy: Tensor) -> Tensor:
    """dy times softmax(x)."""
    return keep_axes(dy, x, axis, keepdims) * meta.exp(x - keep_axes(y, x, axis, keepdims))


def logcumsumexp_grad(x: Tensor, axis: int, exclusive: bool, reverse: bool, y: Tensor, dy: Tensor) -> Tensor:
    """dx_i = sum_j dy_j exp(x_i - y_j) over the results that contain x_i: sums over positive and over negative dy_j,
    each by its logarithm, as exp(-y_j) overflows."""
    is_empty = meta.equal(y, -math.inf)

    def part(weights: Tensor) -> Tensor:
        is_positive = meta.greater(weights, 0)
        terms = meta.log(meta.where(is_positive, weights, 1)) - meta.where(is_empty, 0, y)
        counted = meta.where(meta.logical_and(is_positive, meta.logical_not(is_empty)), terms, -math.inf)
        return meta.exp(meta.logcumsumexp(counted, axis, exclusive, not reverse) + x)

    return part(dy) - part(-dy)


def logcumsumexp_tangent(x: Tensor, axis: int, exclusive: bool, reverse: bool, x_t: Tensor) -> Tensor:
    """sum_i t_i exp(x_i - y_j) over the x_i in result j: for positive and for negative t_i, each by the logarithm of
    the sum, as exp(x_i) overflows; 0 for results of no elements. In differences from the maximum, the logarithms that
    are added to x keep their digits."""
    highest = meta.max(x, axis, True)
    x = x - meta.where(meta.isfinite(highest), highest, 0)
    y = meta.logcumsumexp(x, axis, exclusive, reverse)
    total = meta.where(meta.equal(y, -math.inf), 0, y)

    def part(weights: Tensor) -> Tensor:
        is_positive = meta.greater(weights, 0)
        terms = meta.where(is_positive, meta.log(meta.where(is_positive, weights, 1)) + x, -math.inf)
        return meta.exp(meta.logcumsumexp(terms, axis, exclusive, reverse) - total)

    return part(x_t) - part(-x_t)


def var_grad(x: Tensor, axis: tuple[int, ...] | None, correction: float, keepdims: bool, dy: Tensor) -> Tensor:
    """dy * 2 (x - mean) / (n - correction)."""
    centred = x - meta.mean(x, axis, True)
    return keep_axes(dy, x, axis, keepdims) * centred * _per_freedom(2.0, x, axis, correction)


def std_grad(
    x: Tensor, axis: tuple[int, ...] | None, correction: float, keepdims: bool, y: Tensor, dy: Tensor
) -> Tensor:
    """dy * (x - mean) / (n - correction) / y; 0 where y is 0."""
    centred = x - meta.mean(x, axis, True)
    is_zero = meta.equal(y, 0)
    slope = meta.where(is_zero, 0.0, dy / meta.where(is_zero, 1.0, y))
    return keep_axes(slope, x, axis, keepdims) * centred * _per_freedom(1.0, x, axis, correction)


def _per_freedom(numerator: float, x: Tensor, axis: tuple[int, ...] | None, correction: float) -> Any:
    """numerator / (n - correction), where n is at least 1; NaN for a divisor of 0 or less. A number, or for symbolic
    sizes a 0-d tensor."""
    count = at_least_one(_count(x, axis), x)
    divisor = count - correction
    if isinstance(count, int):
        return numerator / divisor if divisor > 0 else math.nan
    return meta.cast(meta.where(meta.greater(divisor, 0), numerator / divisor, math.nan), x.dtype)


def prod_dx_x(x: Tensor, dy: Tensor, axis: tuple[int, ...] | None, keepdims: bool, dz: Tensor) -> Tensor:
    """Gradient of z_i = dy * prod(x_j for j != i): row i of an n x n table is x with x_i replaced by 1, and z is
    dy times its products, so that zeros need no special case. Takes n times the memory of x."""
    axes = rules.axis_indices(axis, x.ndim) if x.ndim else ()
    if not axes:
        return meta.zeros_like(x)
    outer_axes = [a for a in range(x.ndim) if a not in axes]
    order = (*outer_axes, *axes)
    n: Any = product(x.shape[a] for a in axes)
    lead = [x.shape[a] for a in outer_axes]
    rows = product(lead)

    def flat(t: Tensor) -> Tensor:
        return meta.reshape(meta.transpose(t, order), (rows, 1, n))

    diagonal = meta.equal(meta.eye(n, None, x.dtype, x.device), 1)
    table = meta.where(diagonal, 1, flat(x))
    weights = meta.reshape(dy, (rows, 1, 1)) * flat(dz)
    terms = meta.prod_dx(table, meta.reshape(weights, (rows, n)), (2,), False)
    summed = meta.reshape(meta.sum(meta.where(diagonal, 0, terms), (1,)), (*lead, *(x.shape[a] for a in axes)))
    return meta.transpose(summed, tuple(order.index(a) for a in range(x.ndim)))


def prod_dx_dy(x: Tensor, axis: tuple[int, ...] | None, keepdims: bool, dy: Tensor, dz: Tensor) -> Tensor:
    """sum_i dz_i prod(x_j for j != i)."""
    partial = meta.prod_dx(x, meta.ones_like(dy), axis, keepdims)
    return meta.sum(partial * dz, axis, keepdims)


def cumprod_grad(x: Tensor, axis: int, exclusive: bool, reverse: bool, y: Tensor, dy: Tensor) -> Tensor:
    """dx_i = sum_j (dy_j y_j) / x_i over the products y_j that contain x_i. For the first 0 the products are those with
    that 0 replaced by 1; after it dx is 0. In gradients that are recorded, dx of the second 0 is the first times a
    sum of products without both, so that its own derivative is right."""
    zero = meta.equal(x, 0)
    place = meta.cumsum(zero, axis, False, reverse)

    def without(zeros: Any) -> Any:
        """The sum over the products with these elements replaced by 1."""
        products = meta.cumprod(meta.where(zeros, 1, x), axis, exclusive, reverse)
        return meta.cumsum(dy * products, axis, exclusive, not reverse)

    first = meta.logical_and(zero, meta.equal(place, 1))
    regular = meta.cumsum(dy * y, axis, exclusive, not reverse) / meta.where(zero, 1, x)
    dx = meta.where(first, without(first), regular)
    if not modes.grad_enabled or not x.ndim:
        return dx
    second = meta.logical_and(zero, meta.equal(place, 2))
    first_zero = meta.sum(meta.where(first, x, 0), axis, True)
    return meta.where(second, first_zero * without(meta.logical_or(first, second)), dx)
