"""Layers that rearrange the elements of images, and pooling with other windows and its inverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.nn.function import FunctionLayer

Size = int | Sequence[int]


class PixelShuffle(FunctionLayer, function="pixel_shuffle"):
    """(..., c * r**2, h, w) as (..., c, h * r, w * r) with r = upscale_factor."""

    upscale_factor: int


class PixelUnshuffle(FunctionLayer, function="pixel_unshuffle"):
    """The inverse of PixelShuffle, with downscale_factor."""

    downscale_factor: int


class ChannelShuffle(FunctionLayer, function="channel_shuffle"):
    """(n, c, ...) with the channels of `groups` groups interleaved."""

    groups: int


class Unfold(FunctionLayer, function="im2col"):
    """The patches of images (n, c, h, w) as columns, (n, c * kernel height * kernel width, patches)."""

    kernel_size: Size
    dilation: Size = 1
    padding: Size = 0
    stride: Size = 1


class Fold(FunctionLayer, function="col2im"):
    """The images (n, c, *output_size) whose patches are given as columns; overlapping elements are added."""

    output_size: Size
    kernel_size: Size
    dilation: Size = 1
    padding: Size = 0
    stride: Size = 1


class _MaxUnpool(Model):
    rank: ClassVar[int]

    def build(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        self.window = (kernel_size, stride, padding)

    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool: Callable[..., Any] = getattr(meta, f"max_unpool{self.rank}d")
        return unpool(x, indices, *self.window, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Zeros with the elements of (n, c, l) at the positions that MaxPool1d with return_indices gave; output_size of
    `forward` chooses among the sizes that have such a pooled size."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d; see MaxUnpool1d."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d; see MaxUnpool1d."""

    rank = 3


class _FractionalMaxPool(Model):
    rank: ClassVar[int]
    output_ratio: tuple[float, ...] | None

    def build(
        self, kernel_size: Size, output_size: Size | None = None,
        output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    ) -> None:  # fmt: skip
        if (output_size is None) == (output_ratio is None):
            problem = f"output_size is {output_size}, output_ratio is {output_ratio}"
            raise ArgumentError(type(self).__name__, problem, "one of the two")
        self.kernel_size, self.output_size, self.return_indices = kernel_size, output_size, return_indices
        self.output_ratio = None
        if output_ratio is not None:
            ratio = output_ratio
            self.output_ratio = (ratio,) * self.rank if isinstance(ratio, (int, float)) else tuple(ratio)

    def forward(self, x: Tensor) -> Tensor:
        size = self.output_size
        if size is None:
            assert self.output_ratio is not None
            spatial: tuple[int, ...] = tuple(x.shape[-self.rank :])
            size = tuple(int(n * r) for n, r in zip(spatial, self.output_ratio, strict=True))
        lead = tuple(x.shape[:2]) if x.ndim == self.rank + 2 else (1, x.shape[0])
        samples = meta.uniform(random.next_key(x.device), (*lead, self.rank), dtype=x.dtype)
        pool: Callable[..., Any] = getattr(meta, f"fractional_max_pool{self.rank}d")
        result = pool(x, samples, self.kernel_size, size)
        return result if self.return_indices else result[0]


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima over windows of (n, c, h, w) at random places (B. Graham, 2014).

    output_size: the size of the result, or output_ratio: its ratio to the size of x.
    return_indices: return a pair, with the position of each maximum. Raises ArgumentError unless there is one of
    output_size and output_ratio."""

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima over windows of (n, c, d, h, w) at random places; see FractionalMaxPool2d."""

    rank = 3
