"""Gradients of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.op import windows
from meta.op.decomposition import decompose

_MOST_GROUPS = 64
"""Groups of a convolution that its gradient is written for one by one."""
_CONV = {1: meta.conv1d, 2: meta.conv2d, 3: meta.conv3d}
_TRANSPOSE = {1: meta.conv1d_transpose, 2: meta.conv2d_transpose, 3: meta.conv3d_transpose}


def _convolution_dx(rank: int) -> Callable[..., Any]:
    def composed(
        w: Any, dy: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
    ) -> Any:
        """The transposed convolution, whose output padding makes up for the pixels that no window reached."""
        sizes = (*shape[2:], *dy.shape[2:], *w.shape[2:])
        if channels_last or not all(isinstance(d, int) for d in sizes):
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
        """The convolution of x with dy over the batch: strides and dilation change places."""
        if channels_last or groups > _MOST_GROUPS or not all(isinstance(d, int) for d in (*x.shape, *dy.shape)):
            return None
        order = (1, 0, *range(2, rank + 2))
        parts: list[Any] = []
        for inputs, gradients in zip(meta.split(x, groups, 1), meta.split(dy, groups, 1), strict=True):
            moved, kernel = meta.transpose(inputs, order), meta.transpose(gradients, order)
            parts.append(meta.transpose(_CONV[rank](moved, kernel, dilation, padding, stride, 1), order))
        dw = parts[0] if groups == 1 else meta.concatenate(parts, 0)
        # Pixels that no window of the convolution reached make the kernel longer.
        return dw if dw.shape == tuple(shape) else meta.strided_slice(dw, (0,) * (rank + 2), tuple(shape))

    return composed


for _rank in (1, 2, 3):
    decompose({f"conv{_rank}d_dx": _convolution_dx(_rank), f"conv{_rank}d_dw": _convolution_dw(_rank)})
