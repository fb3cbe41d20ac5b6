"""Gradients of convolutions with an epilogue."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor

_Ints = tuple[int, ...]


def conv2d_epilogue_grad(
    needs: tuple[bool, ...], x: Tensor, w: Tensor, bias: Tensor | None, other: Tensor | None, relu: bool,
    stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool, y: Tensor, dy: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients with respect to x, w, bias and other: the gradients of conv2d for the dy that relu lets through."""
    dz = meta.relu_dx(y, dy) if relu else dy
    attributes = (stride, padding, dilation, groups, channels_last)
    dx = meta.conv2d_dx(w, dz, x.shape, *attributes) if needs[0] else None
    dw = meta.conv2d_dw(x, dz, w.shape, *attributes) if needs[1] else None
    dbias = meta.sum(dz, (0, 1, 2) if channels_last else (0, 2, 3)) if needs[2] and bias is not None else None
    return dx, dw, dbias, None if other is None else dz


def conv2d_packed_grad(
    needs: tuple[bool, ...], x: Tensor, w: Tensor, channels: int, bias: Tensor | None, other: Tensor | None,
    relu: bool, stride: _Ints, padding: _Ints, dilation: _Ints, y: Tensor, dy: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients with respect to x, w, bias and other, by the kernel that w packs."""
    panels, *rest, width = w.shape
    dz = meta.relu_dx(y, dy) if relu else dy
    dbias = meta.sum(dz, (0, 1, 2)) if needs[2] and bias is not None else None
    wide = meta.pad(dz, (0,) * 7 + (panels * width - channels,)) if needs[0] or needs[1] else None
    attributes = (stride, padding, dilation, 1, True)
    dx = dw = None
    if needs[0] and wide is not None:
        kernel = meta.reshape(meta.transpose(w, (0, 4, 1, 2, 3)), (panels * width, *rest))
        dx = meta.conv2d_dx(kernel, wide, x.shape, *attributes)
    if needs[1] and wide is not None:
        dkernel = meta.conv2d_dw(x, wide, (panels * width, *rest), *attributes)
        dw = meta.transpose(meta.reshape(dkernel, (panels, width, *rest)), (0, 2, 3, 4, 1))
    return dx, dw, dbias, None if other is None else dz
