"""Sliding windows: the attributes that convolutions and pooling share, and the arithmetic of windows along an axis.

The arithmetic uses only `+ * // %` and comparisons, so it serves Python ints, NumPy and TVM expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

from meta.backend.windows import Windows, adaptive_windows
from meta.dim import Dim, Shape
from meta.op import rules


def per_axis(name: str, value: Sequence[int], rank: int, least: int = 1) -> tuple[int, ...]:
    """One value for each of `rank` axes, from one for all of them or one for each."""
    fits = len(value) in (1, rank) and all(v >= least for v in value)
    one_each = f"one int or {rank}, each at least {least}" if rank > 1 else f"one int, at least {least}"
    rules.require(fits, f"{name} is {_text(value)}", one_each)
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def pads(value: Sequence[int], rank: int) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis, from one int, one int per axis, or all befores followed by all afters."""
    fits = len(value) in (1, rank, 2 * rank) and all(v >= 0 for v in value)
    rules.require(fits, f"padding is {_text(value)}",
                  f"one int, {rank} (one per axis) or {2 * rank} (befores, then afters), none negative")  # fmt: skip
    if len(value) == 1:
        return ((value[0], value[0]),) * rank
    if len(value) == rank:
        return tuple((v, v) for v in value)
    return tuple(zip(value[:rank], value[rank:], strict=True))


def attributes(
    rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Stride, padding and dilation of a convolution with one value for each of `rank` axes."""
    return per_axis("stride", stride, rank), pads(padding, rank), per_axis("dilation", dilation, rank)


def axes(rank: int, first: str, channels: str, channels_last: bool = False) -> tuple[str, ...]:
    """The names of the axes of a tensor or kernel, in their order."""
    spatial = ("depth", "height", "width")[3 - rank :]
    return (first, *spatial, channels) if channels_last else (first, channels, *spatial)


def channels_first(shape: Shape, channels_last: bool) -> Shape:
    """(batch, channels, *spatial) for the shape of a tensor with channels there, or last. Of a kernel,
    (out channels, channels, *window)."""
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last and len(shape) > 2 else shape


def channels_moved(shape: Shape, channels_last: bool) -> Shape:
    """The inverse of `channels_first`."""
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


def _text(value: Sequence[int]) -> str:
    return str(value[0]) if len(value) == 1 else str(tuple(value))


def symmetric(padding: Sequence[tuple[int, int]]) -> bool:
    """Whether every axis has equal padding on both sides."""
    return all(before == after for before, after in padding)


def reach(kernel: Dim, dilation: int) -> Dim:
    """The number of elements that a dilated kernel spans."""
    return (kernel - 1) * dilation + 1


def window_count(
    size: Dim, kernel: Dim, stride: int, pad: tuple[int, int], dilation: int, ceil_mode: bool = False
) -> Dim:
    """The number of windows along an axis; with `ceil_mode` also a last one that starts inside the input or the padding
    before it but ends beyond. Raises TypeInferenceError when none fits."""
    span = reach(kernel, dilation)
    room = size + pad[0] + pad[1] - span
    if not isinstance(room, int):
        return room // stride + 1
    rules.require(room >= 0,
                  f"a kernel of {kernel} with dilation {dilation} does not fit into {size} elements padded by {pad}",
                  f"at least {span} elements with padding", "pad more, or use a smaller kernel")  # fmt: skip
    if not ceil_mode or not isinstance(size, int):
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + pad[0] else count


def pool_windows(
    shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool,
) -> tuple[Windows, ...]:  # fmt: skip
    """The windows of a pooling operator along each axis of the spatial `shape`."""
    rank = len(shape)
    kernels = per_axis("kernel", kernel, rank)
    steps = per_axis("stride", stride or kernels, rank)
    spreads = per_axis("dilation", dilation, rank)
    out: list[Windows] = []
    for size, k, step, pad, spread in zip(shape, kernels, steps, pads(padding, rank), spreads, strict=True):
        span = (k - 1) * spread + 1
        rules.require(max(pad) < span, f"padding is {pad} for a kernel that spans {span}", "less than that")
        count = window_count(size, k, step, pad, spread, ceil_mode)
        out.append(Windows(size, count, k, step, spread, *pad))  # type: ignore[arg-type]
    return tuple(out)


def adaptive_pool_windows(shape: Sequence[int], size: Sequence[int]) -> tuple[Windows, ...]:
    """The windows of adaptive pooling from the spatial `shape` to `size`."""
    return tuple(map(adaptive_windows, shape, size))
