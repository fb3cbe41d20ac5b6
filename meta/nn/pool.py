"""Pooling of one, two and three spatial axes, with or without a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_int
from meta.errors import ArgumentError
from meta.model.model import Model

Size = int | Sequence[int]


class _Pool(Model):
    rank: ClassVar[int]
    operator: ClassVar[str]

    def _pool(self, x: Tensor, *args: object, indices: bool = False, **options: bool) -> Any:
        """indices: return the positions of the maxima too."""
        if x.ndim == self.rank + 1:
            result = self._pool(meta.expand_dims(x, 0), *args, indices=indices, **options)
            return tuple(meta.squeeze(y, 0) for y in result) if indices else meta.squeeze(result, 0)
        pool: Callable[..., Any] = getattr(meta, f"{self.operator}{self.rank}d{'_with_indices' * indices}")
        return pool(x, *args, **options)


class _MaxPool(_Pool):
    operator = "max_pool"

    def build(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        self.window = (kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return self._pool(x, *self.window, indices=self.return_indices)


class _AvgPool(_Pool):
    operator = "avg_pool"

    def build(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        if divisor_override == 0:
            raise ArgumentError(type(self).__name__, "divisor_override is 0", "another number, or None")
        self.divisor_override = divisor_override
        self.window = (kernel_size, kernel_size if stride is None else stride, padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Any:
        if self.divisor_override is not None:
            if x.ndim == self.rank + 1:
                return meta.squeeze(self.forward(meta.expand_dims(x, 0)), 0)
            total: Callable[..., Any] = getattr(meta, f"sum_pool{self.rank}d")
            sums = total(x, *self.window, self.ceil_mode)
            if is_int(x.dtype):
                return meta.cast(meta.trunc_divide(sums, self.divisor_override), x.dtype)
            return sums / self.divisor_override
        return self._pool(x, *self.window, ceil_mode=self.ceil_mode, count_include_pad=self.count_include_pad)


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


class AvgPool1d(_AvgPool):
    """Mean over windows of (n, c, l); stride defaults to the kernel size.

    padding: zeros at each end.  count_include_pad: whether they count in the mean.
    divisor_override: what sums are divided by, in place of the number of elements.
    ceil_mode: keep a last window that is partly outside if it starts inside."""

    rank = 1


class AvgPool2d(_AvgPool):
    """Mean over windows of (n, c, h, w); see AvgPool1d."""

    rank = 2


class AvgPool3d(_AvgPool):
    """Mean over windows of (n, c, d, h, w); see AvgPool1d."""

    rank = 3


class _Adaptive(_Pool):
    def build(self, output_size: int | Sequence[int | None]) -> None:
        size = (output_size,) * self.rank if isinstance(output_size, int) else tuple(output_size)
        if len(size) != self.rank:
            expected = f"an int, or {self.rank} of them"
            raise ArgumentError(type(self).__name__, f"output_size is {output_size}", expected)
        self.output_size = size

    def _sizes(self, x: Tensor) -> tuple[int, ...]:
        return tuple(
            n if size is None else size for size, n in zip(self.output_size, x.shape[-self.rank :], strict=True)
        )

    def forward(self, x: Tensor) -> Any:
        return self._pool(x, self._sizes(x))


class AdaptiveAvgPool1d(_Adaptive):
    """Mean of (n, c, l) over windows that give a result of output_size; None in it keeps the size of an axis."""

    rank, operator = 1, "adaptive_avg_pool"


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of (n, c, h, w) over windows that give a result of output_size; see AdaptiveAvgPool1d."""

    rank, operator = 2, "adaptive_avg_pool"


class AdaptiveAvgPool3d(_Adaptive):
    """Mean of (n, c, d, h, w) over windows that give a result of output_size; see AdaptiveAvgPool1d."""

    rank, operator = 3, "adaptive_avg_pool"


class _AdaptiveMax(_Adaptive):
    operator = "adaptive_max_pool"

    def build(self, output_size: int | Sequence[int | None], return_indices: bool = False) -> None:
        super().build(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return self._pool(x, self._sizes(x), indices=self.return_indices)


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
