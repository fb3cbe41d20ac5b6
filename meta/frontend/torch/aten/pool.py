"""Pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_int
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row
from meta.frontend.torch.aten._values import per_axis


def _batched(rank: int, function: Callable[[Any], Any], x: Tensor) -> Any:
    """`function` of x with a batch axis, which its results lose again if x has none."""
    if x.ndim == rank + 2:
        return function(x)
    if x.ndim != rank + 1:
        raise ArgumentError("pool", f"x has {x.ndim} axes", f"{rank + 1} or {rank + 2}")
    out = function(meta.expand_dims(x, 0))
    return tuple(meta.squeeze(y, 0) for y in out) if isinstance(out, tuple) else meta.squeeze(out, 0)


def _int64(out: Tensor | tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
    """Values and positions, with positions as ATen has them; only values, unchanged."""
    return (out[0], meta.cast(out[1], "int64")) if isinstance(out, tuple) else out


def _average(rank: int) -> Callable[..., Any]:
    function = (meta.avg_pool1d, meta.avg_pool2d, meta.avg_pool3d)[rank - 1]
    total = (meta.sum_pool1d, meta.sum_pool2d, meta.sum_pool3d)[rank - 1]

    def avg_pool(
        self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        kernel, steps, width = _window(rank, kernel_size, stride, padding)
        if divisor_override == 0:
            raise ArgumentError("avg_pool", "divisor_override is 0", "another number")

        def pool(x: Tensor) -> Any:
            if divisor_override is None:
                return function(x, kernel, steps, width, (1,) * rank, ceil_mode, count_include_pad)
            sums = total(x, kernel, steps, width, ceil_mode)
            if is_int(x.dtype):
                return meta.cast(meta.trunc_divide(sums, divisor_override), x.dtype)
            return sums / divisor_override

        return _batched(rank, pool, self)

    return avg_pool


def _window(rank: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    """Kernel, steps and padding of each axis; without steps, windows follow one another."""
    kernel, width = per_axis(kernel_size, rank), per_axis(padding, rank)
    if any(p < 0 or p > k // 2 for k, p in zip(kernel, width, strict=True)):
        raise ArgumentError("pool", f"padding {width} for a kernel of {kernel}", "at most half of the kernel")
    return kernel, per_axis(stride, rank) if stride not in (None, (), []) else kernel, width


def _maximum(rank: int, indices: bool) -> Callable[..., Any]:
    plain = (meta.max_pool1d, meta.max_pool2d, meta.max_pool3d)[rank - 1]
    with_indices = (meta.max_pool1d_with_indices, meta.max_pool2d_with_indices, meta.max_pool3d_with_indices)[rank - 1]
    function = with_indices if indices else plain

    def max_pool(
        self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        window = (*_window(rank, kernel_size, stride, padding), per_axis(dilation, rank), ceil_mode)
        return _batched(rank, lambda x: _int64(function(x, *window)), self)

    return max_pool


def _adaptive(rank: int, largest: bool) -> Callable[..., Any]:
    averages = (meta.adaptive_avg_pool1d, meta.adaptive_avg_pool2d, meta.adaptive_avg_pool3d)
    maxima = (
        meta.adaptive_max_pool1d_with_indices,
        meta.adaptive_max_pool2d_with_indices,
        meta.adaptive_max_pool3d_with_indices,
    )
    function = (maxima if largest else averages)[rank - 1]

    def adaptive_pool(self: Any, output_size: Any) -> Any:
        output_sizes = per_axis(output_size, rank)
        sizes = [old if new is None else new for old, new in zip(self.shape[-rank:], output_sizes, strict=True)]
        return _batched(rank, lambda x: _int64(function(x, sizes)), self)

    return adaptive_pool


for _rank in (1, 2, 3):
    row(f"avg_pool{_rank}d")(_average(_rank))
    row(f"max_pool{_rank}d")(_maximum(_rank, indices=False))
    row(f"max_pool{_rank}d_with_indices")(_maximum(_rank, indices=True))
    row(f"adaptive_avg_pool{_rank}d", *(f"_adaptive_avg_pool{r}d" for r in (2, 3) if r == _rank))(
        _adaptive(_rank, largest=False)
    )
    row(f"adaptive_max_pool{_rank}d")(_adaptive(_rank, largest=True))


@row()
def max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int],
    padding: int | Sequence[int], dilation: int | Sequence[int], ceil_mode: bool, indices: Tensor,
) -> Any:  # fmt: skip
    if self.ndim == 3:
        dy, x, places = (meta.expand_dims(t, 0) for t in (grad_output, self, indices))
        window = kernel_size, stride, padding, dilation, ceil_mode
        return meta.squeeze(max_pool2d_with_indices_backward(dy, x, *window, places), 0)
    window = (*_window(2, kernel_size, stride, padding), per_axis(dilation, 2), ceil_mode)
    return meta.max_pool2d_dx(grad_output, indices, self.shape, *window)


def _unpool(rank: int) -> Callable[..., Any]:
    function = (meta.max_unpool2d, meta.max_unpool3d)[rank - 2]

    def max_unpool(
        self: Tensor, indices: Tensor, output_size: Any, stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] | None = None,
    ) -> Any:  # fmt: skip
        sizes = tuple(output_size)
        kernel = tuple(out - n + 1 for out, n in zip(sizes, self.shape[-rank:], strict=True))
        return function(self, indices, kernel, 1, 0, sizes)  # the window whose steps of 1 give the sizes

    return max_unpool


def _fractional(rank: int) -> Callable[..., Any]:
    function = (meta.fractional_max_pool2d, meta.fractional_max_pool3d)[rank - 2]

    def fractional_max_pool(
        self: Tensor, kernel_size: int | Sequence[int], output_size: int | Sequence[int], random_samples: Tensor
    ) -> Any:
        return function(self, random_samples, per_axis(kernel_size, rank), per_axis(output_size, rank))

    return fractional_max_pool


for _rank in (2, 3):
    row(f"max_unpool{_rank}d")(_unpool(_rank))
    row(f"fractional_max_pool{_rank}d")(_fractional(_rank))
