"""Gradients of Fourier transforms: the transposed sums, with conjugated exponents."""

from __future__ import annotations

from typing import Literal

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim
from meta.ir.type import TensorType

Scale = Literal["none", "root", "size"]


def r2c_grad(x: TensorType, axes: tuple[int, ...], scale: Scale, onesided: bool, dy: Tensor) -> Tensor:
    """The real part of the backward transform; frequencies that were left out have no gradient."""
    if onesided:
        last = axes[-1] % x.ndim
        widths = [0] * (2 * x.ndim)
        widths[2 * last + 1] = x.shape[last] - dy.shape[last]
        dy = meta.pad(dy, tuple(widths))
    return meta.real(meta.fft_c2c(dy, axes, scale, False))


def c2r_grad(x: TensorType, axes: tuple[int, ...], last_size: Dim, scale: Scale, dy: Tensor) -> Tensor:
    """The forward transform. Frequencies whose negatives are not stored count twice."""
    dx = meta.fft_r2c(dy, axes, scale, True)
    last = axes[-1] % x.ndim
    twice = last_size - dx.shape[last]
    position = meta.arange(0, dx.shape[last], 1, "int64", dx.device)
    doubled = meta.logical_and(position >= 1, position < twice + 1)
    shape = tuple(-1 if axis == last else 1 for axis in range(x.ndim))
    return dx * meta.reshape(meta.where(doubled, 2.0, 1.0).cast(dy.dtype), shape)
