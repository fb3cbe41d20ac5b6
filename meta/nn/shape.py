"""Layers that change shapes: flattening, and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model

Mode = Literal["nearest", "linear", "bilinear", "trilinear", "bicubic"]
_MODES = ("nearest", "linear", "bilinear", "trilinear", "bicubic")


class Identity(Model):
    """x. Arguments of the constructor are ignored."""

    def build(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Model):
    """Merges the axes from start_dim to end_dim, by default all but the first. Raises ArgumentError for other axes than
    x has."""

    def build(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        first, last = (a + x.ndim if a < 0 else a for a in (self.start_dim, self.end_dim))
        if not 0 <= first <= last < x.ndim:
            problem = f"'x' has shape {x.shape}, start_dim is {self.start_dim}, end_dim is {self.end_dim}"
            raise ArgumentError("Flatten", problem, "axes of x, the first one first")
        return meta.reshape(x, (*x.shape[:first], -1, *x.shape[last + 1 :]))


class Unflatten(Model):
    """Divides the axis dim into axes of sizes unflattened_size; one of them may be -1."""

    def build(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        axis = self.dim % x.ndim
        return meta.reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))


class _Upsample(Model):
    mode: Mode

    def _set(
        self, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None, mode: Mode,
        align_corners: bool = False, recompute_scale_factor: bool = False,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        if (size is None) == (scale_factor is None):
            raise ArgumentError(name, f"size is {size}, scale_factor is {scale_factor}", "one of the two")
        if mode not in _MODES:
            raise ArgumentError(name, f"mode is {mode!r}", ", ".join(map(repr, _MODES)))
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners, self.recompute_scale_factor = mode, align_corners, recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        how = (self.align_corners, self.recompute_scale_factor)
        return meta.interpolate(x, self.size, self.scale_factor, self.mode, *how)


class Upsample(_Upsample):
    """An image (n, c, *spatial) at another size; see meta.interpolate.

    size: the spatial sizes, or one for all axes.
    scale_factor: multiplies the sizes instead, one factor or one for each axis; results are rounded down.
    mode: "nearest", "linear" (one spatial axis), "bilinear" (two), "trilinear" (three) or "bicubic" (two).
    align_corners: whether the centres of the outermost elements stay at their places.
    recompute_scale_factor: whether elements are the ratio of the sizes apart instead of 1 / scale_factor.
    Raises ArgumentError unless there is one of size and scale_factor, and for modes of another number of axes."""

    def build(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
        mode: Mode = "nearest", align_corners: bool = False, recompute_scale_factor: bool = False,
    ) -> None:  # fmt: skip
        self._set(size, scale_factor, mode, align_corners, recompute_scale_factor)


class UpsamplingNearest2d(_Upsample):
    """Upsample of (n, c, h, w) with mode "nearest"."""

    def build(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        self._set(size, scale_factor, "nearest")


class UpsamplingBilinear2d(_Upsample):
    """Upsample of (n, c, h, w) with mode "bilinear" and align_corners."""

    def build(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        self._set(size, scale_factor, "bilinear", True)
