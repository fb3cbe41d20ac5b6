"""Padding of one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model

Widths = int | Sequence[int]


class _Pad(Model):
    rank: ClassVar[int]
    mode: ClassVar[Literal["constant", "edge", "reflect", "wrap"]] = "constant"
    value: float = 0.0

    def _set(self, padding: Widths) -> None:
        count = 2 * self.rank
        self.padding = (padding,) * count if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != count:
            expected = f"an int, or {count} of them: before and after each axis, the last axis first"
            raise ArgumentError(type(self).__name__, f"padding is {padding}", expected)

    def forward(self, x: Tensor) -> Tensor:
        pairs = list(zip(self.padding[::2], self.padding[1::2], strict=True))[::-1]
        if x.ndim not in (self.rank + 1, self.rank + 2):
            expected = f"rank {self.rank + 2}, or {self.rank + 1} without a batch"
            raise ArgumentError(type(self).__name__, f"'x' has shape {tuple(x.shape)}", expected)
        return meta.pad(x, [*[(0, 0)] * (x.ndim - self.rank), *pairs], self.value, self.mode)


class _PlainPad(_Pad):
    def build(self, padding: Widths) -> None:
        self._set(padding)


class _ConstantPad(_Pad):
    def build(self, padding: Widths, value: float) -> None:
        self._set(padding)
        self.value = value


class ConstantPad1d(_ConstantPad):
    """(n, c, l) or (c, l) with `value` added before and after; padding: one width, or one for each end. Negative widths
    remove elements."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """(n, c, h, w) with `value` added around; padding: one width, or (left, right, top, bottom)."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """(n, c, d, h, w) with `value` added around; padding: one width, or (left, right, top, bottom, front, back)."""

    rank = 3


class ZeroPad1d(_PlainPad):
    """ConstantPad1d with zeros."""

    rank = 1


class ZeroPad2d(_PlainPad):
    """ConstantPad2d with zeros."""

    rank = 2


class ZeroPad3d(_PlainPad):
    """ConstantPad3d with zeros."""

    rank = 3


class ReflectionPad1d(_PlainPad):
    """(n, c, l) or (c, l) with a mirror image, without the edge element, at each end; widths as of ConstantPad1d."""

    rank, mode = 1, "reflect"


class ReflectionPad2d(_PlainPad):
    """(n, c, h, w) with mirror images around; widths as of ConstantPad2d."""

    rank, mode = 2, "reflect"


class ReflectionPad3d(_PlainPad):
    """(n, c, d, h, w) with mirror images around; widths as of ConstantPad3d."""

    rank, mode = 3, "reflect"


class ReplicationPad1d(_PlainPad):
    """(n, c, l) or (c, l) with copies of the edge element at each end; widths as of ConstantPad1d."""

    rank, mode = 1, "edge"


class ReplicationPad2d(_PlainPad):
    """(n, c, h, w) with copies of the edge elements around; widths as of ConstantPad2d."""

    rank, mode = 2, "edge"


class ReplicationPad3d(_PlainPad):
    """(n, c, d, h, w) with copies of the edge elements around; widths as of ConstantPad3d."""

    rank, mode = 3, "edge"


class CircularPad1d(_PlainPad):
    """(n, c, l) or (c, l) with elements from the opposite end; widths as of ConstantPad1d."""

    rank, mode = 1, "wrap"


class CircularPad2d(_PlainPad):
    """(n, c, h, w) with elements from the opposite ends; widths as of ConstantPad2d."""

    rank, mode = 2, "wrap"


class CircularPad3d(_PlainPad):
    """(n, c, d, h, w) with elements from the opposite ends; widths as of ConstantPad3d."""

    rank, mode = 3, "wrap"
