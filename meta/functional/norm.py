"""Normalisations that are special cases of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T
from meta.dim import product
from meta.dtype import is_complex, is_float
from meta.errors import ArgumentError
from meta.functional._axes import along

__all__ = ["group_norm", "instance_norm", "local_response_norm"]


def group_norm(x: T, groups: int, scale: T | None = None, bias: T | None = None, eps: float = 1e-5, axis: int = 1) -> T:
    """(x - mean) / sqrt(variance + eps) * scale + bias, with the moments of each group of channels of each example (Y.
    Wu, K. He, "Group Normalization", 2018). x: (batch, ...), with channels along `axis`; scale, bias: one a channel."""
    position = axis % x.ndim
    channels = x.shape[position]
    if isinstance(channels, int) and channels % groups:
        raise ArgumentError("group_norm", f"{channels} channels in {groups} groups", "a multiple of groups")
    moved = x if position == 1 else meta.moveaxis(x, position, 1)
    rest = product(d for i, d in enumerate(x.shape) if i not in (0, position))
    flat = meta.reshape(moved, (x.shape[0], groups, channels // groups * rest))
    normal = meta.reshape(meta.layer_norm(flat, None, None, -1, eps), moved.shape)
    y = normal if position == 1 else meta.moveaxis(normal, 1, position)
    y = y if scale is None else y * along(scale, position, x.ndim)
    return y if bias is None else y + along(bias, position, x.ndim)


def instance_norm(x: T, scale: T | None = None, bias: T | None = None, eps: float = 1e-5, axis: int = 1) -> T:
    """group_norm with a group a channel (D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization", 2016)."""
    return group_norm(x, x.shape[axis], scale, bias, eps, axis)


def local_response_norm(x: T, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> T:
    """x / (k + alpha * mean(x**2))**beta, with the mean over `size` neighbouring channels, zeros beyond the first and
    the last (A. Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012). x: (n, c,
    ...). Integers give float32; their means are rounded down. Raises ArgumentError for less than three axes and a size
    below 1."""
    if x.ndim < 3 or size < 1:
        problem = f"'x' has shape {tuple(x.shape)}, size is {size}"
        raise ArgumentError("local_response_norm", problem, "(n, channels, ...) and a size of at least 1")
    if x.size == 0:
        return x if is_float(x.dtype) else meta.cast(x, "float32")
    squares = meta.reshape(x * x, (x.shape[0], 1, x.shape[1], -1))
    squares = meta.pad(squares, ((0, 0), (0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    if is_float(x.dtype):
        means: Any = meta.avg_pool2d(squares, (size, 1), 1)
    else:
        windows: list[Any] = [squares[:, :, i : i + x.shape[1]] for i in range(size)]
        means = sum(windows[1:], windows[0]) // size
    return x / meta.power(meta.reshape(means, x.shape) * alpha + k, beta)


def p_norm(x: T, p: float, axis: int | Sequence[int] | None = -1, keepdims: bool = False) -> T:
    """sum(|x|**p)**(1/p) over axes: for p = inf and -inf the largest and the smallest |x|, for 0 the number of elements
    that are not 0. Elements of 0, and vectors of zeros, have the gradient 0, as in torch."""
    x = meta.abs(x) if is_complex(x.dtype) else x
    if math.isinf(p):
        return (meta.max if p > 0 else meta.min)(meta.abs(x), axis, keepdims)
    if p == 0:
        return meta.sum(meta.cast(meta.not_equal(x, 0), x.dtype), axis, keepdims)
    if p == 1:
        return meta.sum(meta.abs(x), axis, keepdims)
    if p == 2:
        return root(meta.sum(x * x, axis, keepdims), 2)
    is_zero = meta.equal(x, 0)
    powers = meta.power(meta.where(is_zero, 1, meta.abs(x)), p)
    return root(meta.sum(meta.where(is_zero, 0 if p > 0 else math.inf, powers), axis, keepdims), p)


def root(total: T, p: float) -> T:
    """total**(1/p), with the gradient 0 at 0."""
    is_zero = meta.equal(total, 0)
    safe = meta.where(is_zero, 1, total)
    return meta.where(is_zero, 0 if p > 0 else math.inf, meta.sqrt(safe) if p == 2 else meta.power(safe, 1 / p))
