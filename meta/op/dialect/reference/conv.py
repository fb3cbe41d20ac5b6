"""Convolutions in NumPy: one matrix product for each element of the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op import windows
from meta.op.dialect.reference import DIALECT

_Ints = tuple[int, ...]


def _grouped(x: Any, groups: int, axis: int) -> Any:
    """The channel axis divided into (groups, channels of each)."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def _taps(kernel: _Ints, counts: _Ints, stride: _Ints, dilation: _Ints) -> Iterator[tuple[_Ints, tuple[slice, ...]]]:
    """Each element of the window with the positions of the padded input that it meets."""
    steps, _, spreads = windows.attributes(len(kernel), stride, (0,), dilation)
    for r in product(*map(range, kernel)):
        yield (
            r,
            tuple(
                slice(b * s, b * s + (d - 1) * t + 1, t) for b, s, d, t in zip(r, spreads, counts, steps, strict=True)
            ),
        )


def _padded(x: Any, padding: _Ints) -> Any:
    return np.pad(x, ((0, 0), (0, 0), *windows.pads(padding, x.ndim - 2)))


def conv(x: Any, w: Any, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int) -> Any:
    steps, _, spreads = windows.attributes(x.ndim - 2, stride, padding, dilation)
    data, kernel = _grouped(_padded(widen(x), padding), groups, 1), _grouped(widen(w), groups, 0)
    counts = tuple(
        (d - windows.reach(k, s)) // t + 1
        for d, k, s, t in zip(data.shape[3:], w.shape[2:], spreads, steps, strict=True)
    )
    out = np.zeros((x.shape[0], groups, w.shape[0] // groups, *counts), data.dtype)
    for r, place in _taps(w.shape[2:], counts, stride, dilation):
        out += np.einsum("ngc...,goc->ngo...", data[(..., *place)], kernel[(..., *r)])
    return out.reshape(x.shape[0], w.shape[0], *counts)


def conv_dx(w: Any, dy: Any, shape: _Ints, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int) -> Any:
    pads = windows.pads(padding, len(shape) - 2)
    grad, kernel = _grouped(widen(dy), groups, 1), _grouped(widen(w), groups, 0)
    sizes = tuple(d + before + after for d, (before, after) in zip(shape[2:], pads, strict=True))
    out = np.zeros((shape[0], groups, shape[1] // groups, *sizes), grad.dtype)
    for r, place in _taps(w.shape[2:], dy.shape[2:], stride, dilation):
        out[(..., *place)] += np.einsum("ngo...,goc->ngc...", grad, kernel[(..., *r)])
    inner = tuple(slice(before, before + d) for d, (before, _) in zip(shape[2:], pads, strict=True))
    return out.reshape(shape[0], shape[1], *sizes)[(..., *inner)]


def conv_transpose(
    x: Any, w: Any, stride: _Ints, padding: _Ints, output_padding: _Ints, dilation: _Ints, groups: int
) -> Any:
    steps, pads, spreads = windows.attributes(x.ndim - 2, stride, padding, dilation)
    more = windows.per_axis("output_padding", output_padding, x.ndim - 2, 0)
    sizes = tuple(
        (d - 1) * t + windows.reach(k, s) - p[0] - p[1] + e
        for d, t, k, s, p, e in zip(x.shape[2:], steps, w.shape[2:], spreads, pads, more, strict=True)
    )
    return conv_dx(w, x, (x.shape[0], w.shape[1] * groups, *sizes), stride, padding, dilation, groups)


def _in_either_layout(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of two tensors for channels on the second or the last axis."""

    def run(x: Any, w: Any, *attributes: Any) -> Any:
        *others, channels_last = attributes
        if not channels_last:
            return function(x, w, *others)
        return np.moveaxis(function(np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1), *others), 1, -1)

    return run


def conv2d_epilogue(x: Any, w: Any, bias: Any, other: Any, relu: bool, *attributes: Any) -> Any:
    out = _in_either_layout(conv)(x, w, *attributes)
    if bias is not None:
        out = out + widen(bias if attributes[-1] else bias[:, None, None])
    if other is not None:
        out = out + widen(other)
    return np.maximum(out, 0) if relu else out


def conv2d_packed(x: Any, w: Any, channels: int, bias: Any, other: Any, relu: bool, *attributes: Any) -> Any:
    kernel = np.moveaxis(w, -1, 1).reshape(-1, *w.shape[1:-1])[:channels]
    return conv2d_epilogue(x, kernel, bias, other, relu, *attributes, 1, True)


DIALECT.implement("conv2d_epilogue", conv2d_epilogue)
DIALECT.implement("conv2d_packed", conv2d_packed)
for _rank in (1, 2, 3):
    DIALECT.implement(f"conv{_rank}d", _in_either_layout(conv))
    DIALECT.implement(f"conv{_rank}d_transpose", conv_transpose)
