"""Functions that rearrange the elements of images: patches to columns and back, pixels to channels and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import product
from meta.errors import ArgumentError, MetaError
from meta.op import windows

__all__ = ["channel_shuffle", "col2im", "im2col", "pixel_shuffle", "pixel_unshuffle"]

_Size = int | Sequence[int]


class _Patches:
    """Where the patches of an image (height, width) lie, along each axis."""

    def __init__(self, name: str, shape: Sequence[int], kernel: _Size, dilation: _Size, padding: _Size, stride: _Size):
        try:
            self.kernel = windows.per_axis("kernel", _pair(kernel), 2)
            self.dilation = windows.per_axis("dilation", _pair(dilation), 2)
            self.padding = windows.per_axis("padding", _pair(padding), 2, least=0)
            self.stride = windows.per_axis("stride", _pair(stride), 2)
            axes = zip(shape, self.kernel, self.stride, self.padding, self.dilation, strict=True)
            self.counts = tuple(windows.window_count(n, k, s, (p, p), d) for n, k, s, p, d in axes)
        except MetaError as error:
            error.attribute(name)
            raise

    def positions(self, axis: int, device: Any) -> Any:
        """The padded position of element k of patch i, (kernel, count)."""
        offset = meta.arange(0, self.kernel[axis], 1, "int64", device) * self.dilation[axis]
        start = meta.arange(0, self.counts[axis], 1, "int64", device) * self.stride[axis]
        return meta.expand_dims(offset, 1) + start


def _pair(size: _Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


def im2col(x: T, kernel: _Size, dilation: _Size = 1, padding: _Size = 0, stride: _Size = 1) -> T:
    """The patches of images as columns: (n, c, h, w) becomes (n, c * kernel height * kernel width, patches); (c, h, w)
    has no batch. Sizes are one int, or two for height and width; padding adds zeros at both ends. Raises
    ArgumentError for another rank and empty images, TypeInferenceError for a kernel that does not fit."""
    if x.ndim not in (3, 4) or 0 in x.shape[-3:]:
        raise ArgumentError("im2col", f"'x' has shape {tuple(x.shape)}", "(n, c, h, w) or (c, h, w), images not empty")
    if x.ndim == 3:
        return meta.squeeze(im2col(meta.expand_dims(x, 0), kernel, dilation, padding, stride), 0)
    patches = _Patches("im2col", x.shape[2:], kernel, dilation, padding, stride)
    if any(patches.padding):
        x = meta.pad(x, ((0, 0), (0, 0), *((p, p) for p in patches.padding)))
    rows = meta.take(x, patches.positions(0, x.device), 2)
    elements = meta.take(rows, patches.positions(1, x.device), 4)
    columns = meta.transpose(elements, (0, 1, 2, 4, 3, 5))
    return meta.reshape(columns, (x.shape[0], x.shape[1] * product(patches.kernel), product(patches.counts)))


def col2im(x: T, size: _Size, kernel: _Size, dilation: _Size = 1, padding: _Size = 0, stride: _Size = 1) -> T:
    """The images that `im2col` takes patches of, with the elements of overlapping patches added: (n, c * kernel height
    * kernel width, patches) becomes (n, c, *size); without a batch if x has rank 2. Raises ArgumentError for shapes
    that do not fit."""
    if x.ndim == 2:
        return meta.squeeze(col2im(meta.expand_dims(x, 0), size, kernel, dilation, padding, stride), 0)
    size = _pair(size) * 2 if isinstance(size, int) else _pair(size)
    if len(size) != 2:
        raise ArgumentError("col2im", f"size is {size}", "an int, or two of them")
    patches = _Patches("col2im", size, kernel, dilation, padding, stride)
    elements, count = product(patches.kernel), product(patches.counts)
    if x.ndim != 3 or x.shape[1] % elements or x.shape[1] == 0 or x.shape[2] != count:
        problem = f"'x' has shape {tuple(x.shape)}"
        raise ArgumentError("col2im", problem, f"(n, channels * {elements}, {count}), the patches of an image {size}")
    channels = x.shape[1] // elements
    parts = meta.reshape(x, (x.shape[0], channels, *patches.kernel, *patches.counts))
    parts = meta.transpose(parts, (0, 1, 2, 4, 3, 5))
    height, width = (n + 2 * p for n, p in zip(size, patches.padding, strict=True))
    rows = meta.take_dx(parts, patches.positions(1, x.device), (*parts.shape[:4], width), 4)
    image = meta.take_dx(rows, patches.positions(0, x.device), (*parts.shape[:2], height, width), 2)
    top, left = patches.padding
    return meta.strided_slice(image, (0, 0, top, left), (*image.shape[:2], top + size[0], left + size[1]))


def pixel_shuffle(x: T, factor: int) -> T:
    """(..., c * factor**2, h, w) as (..., c, h * factor, w * factor): groups of factor**2 channels become blocks of
    factor x factor pixels (W. Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
    Sub-Pixel Convolutional Neural Network", 2016). Raises ArgumentError for channels that factor**2 does not divide."""
    _check_pixels("pixel_shuffle", x, factor)
    *lead, channels, height, width = x.shape
    if channels % (factor * factor):
        problem = f"x has {channels} channels, factor is {factor}"
        raise ArgumentError("pixel_shuffle", problem, f"channels that {factor * factor} divides")
    n, out = len(lead), channels // (factor * factor)
    parts = meta.reshape(x, (*lead, out, factor, factor, height, width))
    parts = meta.transpose(parts, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return meta.reshape(parts, (*lead, out, height * factor, width * factor))


def pixel_unshuffle(x: T, factor: int) -> T:
    """The inverse of pixel_shuffle: (..., c, h * factor, w * factor) as (..., c * factor**2, h, w). Raises
    ArgumentError for heights and widths that the factor does not divide."""
    _check_pixels("pixel_unshuffle", x, factor)
    *lead, channels, height, width = x.shape
    if any(size // factor * factor != size for size in (height, width)):
        problem = f"'x' has shape {tuple(x.shape)}, factor is {factor}"
        raise ArgumentError("pixel_unshuffle", problem, "a height and a width that the factor divides")
    n, h, w = len(lead), height // factor, width // factor
    parts = meta.reshape(x, (*lead, channels, h, factor, w, factor))
    parts = meta.transpose(parts, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return meta.reshape(parts, (*lead, channels * factor * factor, h, w))


def _check_pixels(name: str, x: Tensor, factor: int) -> None:
    if factor < 1 or x.ndim < 3:
        problem = f"factor is {factor}, 'x' has shape {tuple(x.shape)}"
        raise ArgumentError(name, problem, "a positive factor and (..., channels, height, width)")


def channel_shuffle(x: T, groups: int) -> T:
    """(n, c, ...) with the channels of `groups` groups interleaved (X. Zhang et al., "ShuffleNet", 2018). Raises
    ArgumentError for groups that do not divide the channels."""
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        problem = f"groups is {groups}, 'x' has shape {tuple(x.shape)}"
        raise ArgumentError("channel_shuffle", problem, "(n, channels, ...) and groups that divide the channels")
    parts = meta.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    return meta.reshape(meta.swap_axis(parts, 1, 2), x.shape)
