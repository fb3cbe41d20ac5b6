"""Gradients of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.op import windows
from meta.op.decomposition import decompose, decomposition

_CONV = {1: meta.conv1d, 2: meta.conv2d, 3: meta.conv3d}
_TRANSPOSE = {1: meta.conv1d_transpose, 2: meta.conv2d_transpose, 3: meta.conv3d_transpose}


def _convolution_dx(rank: int) -> Callable[..., Any]:
    def composed(
        w: Any, dy: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
    ) -> Any:
        """The transposed convolution, whose output padding makes up for the pixels that no window reached."""
        if channels_last:
            first = windows.channels_first(shape, channels_last)
            return _last(composed(_first(w), _first(dy), first, stride, padding, dilation, groups, False))
        if not all(isinstance(d, int) for d in (*shape[2:], *dy.shape[2:], *w.shape[2:])):
            return None
        steps, pads, gaps = windows.attributes(rank, stride, padding, dilation)
        extra: list[int] = []
        for i in range(rank):
            covered = (dy.shape[2 + i] - 1) * steps[i] + (w.shape[2 + i] - 1) * gaps[i] + 1 - sum(pads[i])
            extra.append(shape[2 + i] - covered)
        if any(not 0 <= e < max(s, g) for e, s, g in zip(extra, steps, gaps, strict=True)):
            return None
        return _TRANSPOSE[rank](dy, w, stride, padding, tuple(extra), dilation, groups)

    return composed


def _convolution_dw(rank: int) -> Callable[..., Any]:
    def composed(
        x: Any, dy: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
    ) -> Any:
        """The convolution of x with dy over the batch: strides and dilation change places. Groups stay groups, with
        a channel for each sample."""
        if channels_last:
            first = windows.channels_first(shape, channels_last)
            return _last(composed(_first(x), _first(dy), first, stride, padding, dilation, groups, False))
        if not all(isinstance(d, int) for d in (*x.shape, *dy.shape)):
            return None
        n, behind = x.shape[0], tuple(range(3, rank + 3))
        inputs, gradients = (meta.reshape(t, (n, groups, t.shape[1] // groups, *t.shape[2:])) for t in (x, dy))
        moved = meta.transpose(inputs, (2, 1, 0, *behind))
        kernel = meta.transpose(gradients, (1, 2, 0, *behind))
        moved = meta.reshape(moved, (moved.shape[0], groups * n, *moved.shape[3:]))
        kernel = meta.reshape(kernel, (dy.shape[1], n, *dy.shape[2:]))
        dw = meta.transpose(_CONV[rank](moved, kernel, dilation, padding, stride, groups), (1, 0, *range(2, rank + 2)))
        # Pixels that no window of the convolution reached make the kernel longer.
        return dw if dw.shape == tuple(shape) else meta.strided_slice(dw, (0,) * (rank + 2), tuple(shape))

    return composed


def _first(x: Any) -> Any:
    """Channels on the second axis, from the last."""
    return meta.moveaxis(x, -1, 1)


def _last(x: Any) -> Any:
    return None if x is None else meta.moveaxis(x, 1, -1)


for _rank in (1, 2, 3):
    decompose({f"conv{_rank}d_dx": _convolution_dx(_rank), f"conv{_rank}d_dw": _convolution_dw(_rank)})


@decomposition("conv2d_int8", wide=False)
def conv2d_int8(
    x: Any, w: Any, channels: int, fill: int, stride: Any, padding: Any, dilation: Any, channels_last: bool
) -> Any:
    """The convolution of x - fill, which is 0 around x, and then what fill adds to each channel."""
    panels, *window, quads, width, _ = w.shape
    rows = meta.reshape(meta.transpose(w, (0, 4, 1, 2, 3, 5)), (panels * width, *window, quads * 4))
    kernel = meta.strided_slice(rows, (0, 0, 0, 0), (channels, *window, x.shape[-1 if channels_last else 1]))
    kernel = meta.cast(kernel, "int32")
    total = meta.cast(meta.sum(kernel, (1, 2, 3)), "int32") * fill
    if not channels_last:
        kernel, total = meta.transpose(kernel, (0, 3, 1, 2)), meta.reshape(total, (channels, 1, 1))
    y = meta.conv2d(meta.cast(x, "int32") - fill, kernel, stride, padding, dilation, 1, channels_last)
    return y + total
