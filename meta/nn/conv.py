"""Convolutions and transposed convolutions of one, two and three spatial axes, with or without a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn.init import fan_in_bound

Size = int | Sequence[int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
_PAD_MODES: dict[str, Literal["reflect", "edge", "wrap"]] = {
    "reflect": "reflect", "replicate": "edge", "circular": "wrap",
}  # fmt: skip


class _Convolution(Model):
    """Parameters that all convolutions have: w, and b of shape (out_channels, 1, ...), added to each channel."""

    rank: ClassVar[int]
    weight, bias = Alias("w"), Alias("b")
    _torch_vectors = ("b",)

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "rank" in vars(cls):
            cls._input_size = ("in_channels", -1 - cls.rank)

    def _create(self, shape: tuple[int, ...], out_channels: int, bias: bool) -> None:
        """w of `shape` and b, uniform in +-1/sqrt(fan in), the elements of w behind its first axis."""
        bound = fan_in_bound(math.prod(shape[1:]))
        self.w = random.uniform(shape, -bound, bound)
        self.b = random.uniform((out_channels, *(1,) * self.rank), -bound, bound) if bias else None

    def _sizes(self, name: str, value: Size) -> tuple[int, ...]:
        sizes = (value,) * self.rank if isinstance(value, int) else tuple(value)
        if len(sizes) != self.rank:
            expected = f"an int, or {self.rank} ints, one for each spatial axis"
            raise ArgumentError(type(self).__name__, f"{name} is {value}", expected)
        return sizes

    def _check_groups(self, groups: int, **channels: int) -> None:
        for name, count in channels.items():
            if groups < 1 or count % groups:
                problem = f"{name} is {count}, groups is {groups}"
                raise ArgumentError(type(self).__name__, problem, f"groups that divide {name}")

    def _biased(self, y: Tensor) -> Tensor:
        return y if self.b is None else y + self.b


class _Conv(_Convolution):
    def build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | Literal["same", "valid"] = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
    ) -> None:
        self._check_groups(groups, in_channels=in_channels, out_channels=out_channels)
        kernel = self._sizes("kernel_size", kernel_size)
        self._create((out_channels, in_channels // groups, *kernel), out_channels, bias)
        self.stride, self.dilation = self._sizes("stride", stride), self._sizes("dilation", dilation)
        self.padding, self.groups = self._padding(kernel, padding), groups
        if padding_mode not in ("zeros", *_PAD_MODES):
            expected = '"zeros", "reflect", "replicate" or "circular"'
            raise ArgumentError(type(self).__name__, f"padding_mode is {padding_mode!r}", expected)
        self.padding_mode = padding_mode

    def _padding(self, kernel: tuple[int, ...], padding: Size | str) -> tuple[int, ...]:
        """The padding before each spatial axis, then after each."""
        name = type(self).__name__
        if padding == "valid":
            return (0,) * (2 * self.rank)
        if padding == "same":
            if any(step != 1 for step in self.stride):
                numbers = tuple(d * (k - 1) // 2 for d, k in zip(self.dilation, kernel, strict=True))
                problem, remedy = f'padding is "same", stride is {self.stride}', f"write padding={numbers}"
                raise ArgumentError(name, problem, "stride 1, or numbers", remedy)
            total = [d * (k - 1) for d, k in zip(self.dilation, kernel, strict=True)]
            return (*(n // 2 for n in total), *(n - n // 2 for n in total))
        if isinstance(padding, str):
            raise ArgumentError(name, f"padding is {padding!r}", 'numbers, "same" or "valid"')
        if not isinstance(padding, int) and len(padding) == 2 * self.rank:
            return tuple(padding)
        return self._sizes("padding", padding) * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.with_weight(x, self.w)

    def with_weight(self, x: Tensor, w: Tensor) -> Tensor:
        """The result for another weight than the layer's."""
        if x.ndim == self.rank + 1:
            return meta.squeeze(self.with_weight(meta.expand_dims(x, 0), w), 0)
        padding: tuple[int, ...] = self.padding
        if self.padding_mode != "zeros":
            x, padding = self._padded(x), (0,) * self.rank
        convolve: Callable[..., Any] = getattr(meta, f"conv{self.rank}d")
        return self._biased(convolve(x, w, self.stride, padding, self.dilation, self.groups))

    def _padded(self, x: Tensor) -> Tensor:
        widths = tuple(zip(self.padding[: self.rank], self.padding[self.rank :], strict=True))
        return meta.pad(x, ((0, 0), (0, 0), *widths), mode=_PAD_MODES[self.padding_mode])


class Conv1d(_Conv):
    """1-d convolution; x: (n, in_channels, l), w: (out_channels, in_channels / groups, k).

    padding: elements added at each end: an int, one int per spatial axis, all leading then all trailing ones, "same"
        for a result of the size of x, or "valid" for none.
    padding_mode: what is added: zeros, a mirror image, the edge element, or elements from the other end.
    w and b are initialised uniformly in +-1/sqrt(fan in). Raises ArgumentError for groups that do not divide the
    channels, sizes of another rank, and unknown paddings."""

    rank = 1


class Conv2d(_Conv):
    """2-d convolution; x: (n, in_channels, h, w), w: (out_channels, in_channels / groups, kh, kw).

    Arguments, initialisation and errors are the same as for Conv1d."""

    rank = 2


class Conv3d(_Conv):
    """3-d convolution; x: (n, in_channels, d, h, w), w: (out_channels, in_channels / groups, kd, kh, kw).

    Arguments, initialisation and errors are the same as for Conv1d."""

    rank = 3


class _ConvTranspose(_Convolution):
    def build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
    ) -> None:
        self._check_groups(groups, in_channels=in_channels, out_channels=out_channels)
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self._create((in_channels, out_channels // groups, *self.kernel_size), out_channels, bias)
        self.stride, self.dilation = self._sizes("stride", stride), self._sizes("dilation", dilation)
        self.padding, self.groups = self._sizes("padding", padding), groups
        self.output_padding = self._sizes("output_padding", output_padding)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """output_size: spatial shape of the result, of those that the stride allows; None for output_padding."""
        if x.ndim == self.rank + 1:
            return meta.squeeze(self.forward(meta.expand_dims(x, 0), output_size), 0)
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        convolve: Callable[..., Any] = getattr(meta, f"conv{self.rank}d_transpose")
        return self._biased(convolve(x, self.w, self.stride, self.padding, extra, self.dilation, self.groups))

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that gives a result of `output_size`."""
        axes = zip(x.shape[2:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        least = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in axes)
        requested = tuple(output_size)
        most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
        if len(requested) != self.rank or not all(a <= n <= b for a, n, b in zip(least, requested, most, strict=True)):
            raise ArgumentError(type(self).__name__, f"output_size is {requested}", f"sizes from {least} to {most}")
        return tuple(n - a for n, a in zip(requested, least, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """Transposed 1-d convolution; x: (n, in_channels, l), w: (in_channels, out_channels / groups, k).

    padding: elements cropped at each end; output_padding: extra size at the end of each spatial axis.
    w and b are initialised uniformly in +-1/sqrt(fan in), out_channels / groups times the window. Raises ArgumentError
    for groups that do not divide the channels and sizes of another rank."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed 2-d convolution; x: (n, in_channels, h, w), w: (in_channels, out_channels / groups, kh, kw).

    Arguments, initialisation and errors are the same as for ConvTranspose1d."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed 3-d convolution; x: (n, in_channels, d, h, w), w: (in_channels, out_channels / groups, kd, kh, kw).

    Arguments, initialisation and errors are the same as for ConvTranspose1d."""

    rank = 3
