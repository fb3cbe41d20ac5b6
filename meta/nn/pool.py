"""Pooling of one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import meta
from meta.errors import ArgumentError
from meta.model.model import Model

Size = int | Sequence[int]


class _MaxPool(Model):
    rank: ClassVar[int]

    def build(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.window = (kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        name = f"max_pool{self.rank}d_with_indices" if self.return_indices else f"max_pool{self.rank}d"
        pool: Callable[..., Any] = getattr(meta, name)
        return pool(x, *self.window)


class MaxPool1d(_MaxPool):
    """Maximum over windows of (n, c, l); stride defaults to the kernel size.

    padding: elements at each end that never are the maximum.  dilation: step between the elements of a window.
    return_indices: return a pair, with the position of each maximum among the elements of its channel.
    ceil_mode: keep a last window that is partly outside if it starts inside."""

    rank = 1


class MaxPool2d(_MaxPool):
    """Maximum over windows of (n, c, h, w); see MaxPool1d."""

    rank = 2


class MaxPool3d(_MaxPool):
    """Maximum over windows of (n, c, d, h, w); see MaxPool1d."""

    rank = 3


class _AvgPool(Model):
    rank: ClassVar[int]

    def build(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.window = (kernel_size, kernel_size if stride is None else stride, padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Any) -> Any:
        pool: Callable[..., Any] = getattr(meta, f"avg_pool{self.rank}d")
        return pool(x, *self.window, ceil_mode=self.ceil_mode, count_include_pad=self.count_include_pad)


class AvgPool1d(_AvgPool):
    """Mean over windows of (n, c, l); stride defaults to the kernel size.

    padding: zeros at each end.  count_include_pad: whether they count in the mean.
    ceil_mode: keep a last window that is partly outside if it starts inside."""

    rank = 1


class AvgPool2d(_AvgPool):
    """Mean over windows of (n, c, h, w); see AvgPool1d."""

    rank = 2


class AvgPool3d(_AvgPool):
    """Mean over windows of (n, c, d, h, w); see AvgPool1d."""

    rank = 3


class _Adaptive(Model):
    rank: ClassVar[int]
    operator: ClassVar[str]

    def build(self, output_size: int | Sequence[int | None]) -> None:
        size = (output_size,) * self.rank if isinstance(output_size, int) else tuple(output_size)
        if len(size) != self.rank:
            expected = f"an int, or {self.rank} of them"
            raise ArgumentError(type(self).__name__, f"output_size is {output_size}", expected)
        self.output_size = size

    def _sizes(self, x: Any) -> tuple[int, ...]:
        return tuple(n if size is None else size for size, n in zip(self.output_size, x.shape[2:], strict=True))

    def forward(self, x: Any) -> Any:
        pool: Callable[..., Any] = getattr(meta, f"adaptive_{self.operator}_pool{self.rank}d")
        return pool(x, self._sizes(x))


class AdaptiveAvgPool1d(_Adaptive):
    """Mean of (n, c, l) over windows that give a result of output_size; None in it keeps the size of an axis."""

    rank, operator = 1, "avg"


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of (n, c, h, w) over windows that give a result of output_size; see AdaptiveAvgPool1d."""

    rank, operator = 2, "avg"


class AdaptiveAvgPool3d(_Adaptive):
    """Mean of (n, c, d, h, w) over windows that give a result of output_size; see AdaptiveAvgPool1d."""

    rank, operator = 3, "avg"


class _AdaptiveMax(_Adaptive):
    operator = "max"

    def build(self, output_size: int | Sequence[int | None], return_indices: bool = False) -> None:
        super().build(output_size)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        if not self.return_indices:
            return super().forward(x)
        pool: Callable[..., Any] = getattr(meta, f"adaptive_max_pool{self.rank}d_with_indices")
        return pool(x, self._sizes(x))


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Maximum of (n, c, l) over windows that give a result of output_size; None in it keeps the size of an axis.

    return_indices: return a pair, with the position of each maximum among the elements of its channel."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Maximum of (n, c, h, w) over windows that give a result of output_size; see AdaptiveMaxPool1d."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMax):
    """Maximum of (n, c, d, h, w) over windows that give a result of output_size; see AdaptiveMaxPool1d."""

    rank = 3
