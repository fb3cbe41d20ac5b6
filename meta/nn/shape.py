"""Layers that change shapes: flattening, and resizing of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import meta
from meta.errors import ArgumentError
from meta.model.model import Model

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
"""The number of spatial axes that a mode is for."""


class Identity(Model):
    """x. Arguments of the constructor are ignored."""

    def build(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Model):
    """Merges the axes from start_dim to end_dim, by default all but the first. Raises ArgumentError for other axes than
    x has."""

    def build(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        first, last = (a + x.ndim if a < 0 else a for a in (self.start_dim, self.end_dim))
        if not 0 <= first <= last < x.ndim:
            problem = f"x has shape {x.shape}, start_dim is {self.start_dim}, end_dim is {self.end_dim}"
            raise ArgumentError("Flatten", problem, "axes of x, the first one first")
        return meta.reshape(x, (*x.shape[:first], -1, *x.shape[last + 1 :]))


class Unflatten(Model):
    """Divides the axis dim into axes of sizes unflattened_size, of which one may be -1."""

    def build(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Any) -> Any:
        axis = self.dim % x.ndim
        return meta.reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))


class Upsample(Model):
    """An image (n, c, *spatial) at another size.

    size: the spatial sizes, or one for all axes.
    scale_factor: multiplies the sizes instead, one factor or one for each axis; the products have to be whole.
    mode: "nearest", "linear" (one spatial axis), "bilinear" (two), "trilinear" (three) or "bicubic" (two).
    align_corners: whether the centres of the outermost elements stay at their places.
    Raises ArgumentError unless there is one of size and scale_factor, and for modes of another number of axes."""

    def build(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: Literal["nearest", "linear", "bilinear", "trilinear", "bicubic"] = "nearest",
        align_corners: bool = False,
    ) -> None:
        if (size is None) == (scale_factor is None):
            problem = f"size is {size}, scale_factor is {scale_factor}"
            raise ArgumentError("Upsample", problem, "one of both")
        if mode not in ("nearest", *_RANKS):
            raise ArgumentError("Upsample", f"mode is {mode!r}", f'"nearest", {", ".join(map(repr, _RANKS))}')
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def forward(self, x: Any) -> Any:
        rank = x.ndim - 2
        resize: Callable[..., Any] = getattr(meta, f"resize{rank}d")
        if self.mode == "nearest":
            return resize(x, self._sizes(x), "nearest", "asymmetric")
        if rank != _RANKS[self.mode]:
            problem = f"mode is {self.mode!r}, x has shape {x.shape}"
            raise ArgumentError("Upsample", problem, f"(n, c, ...) with {_RANKS[self.mode]} spatial axes")
        method = "cubic" if self.mode == "bicubic" else "linear"
        return resize(x, self._sizes(x), method, "align_corners" if self.align_corners else "half_pixel")

    def _sizes(self, x: Any) -> tuple[int, ...]:
        spatial = x.shape[2:]
        if self.size is not None:
            return (self.size,) * len(spatial) if isinstance(self.size, int) else tuple(self.size)
        factor = self.scale_factor
        assert factor is not None
        factors = (factor,) * len(spatial) if isinstance(factor, (int, float)) else tuple(factor)
        sizes = [n * f for n, f in zip(spatial, factors, strict=True)]
        if any(not math.isclose(n, round(n)) for n in sizes):
            problem = f"scale_factor is {factor}, x has shape {x.shape}"
            raise ArgumentError("Upsample", problem, "whole sizes", "give size instead")
        return tuple(round(n) for n in sizes)
