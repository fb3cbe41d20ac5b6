"""Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meta
from meta.frontend.relay.convert.call import OpCall, constant, converter

_MAX_POINTS = 2048
"""Points of a transform: its matrix has their square."""


def _waves(rows: int, points: int, dtype: str) -> tuple[Any, Any]:
    """cos and sin of 2 pi i j / points, (points, rows)."""
    angle = 2 * np.pi * (np.outer(np.arange(points), np.arange(rows)) % points) / points
    return constant(np.cos(angle).astype(dtype)), constant(np.sin(angle).astype(dtype))


@converter("dft")
def dft(call: OpCall) -> Any:
    """The discrete Fourier transform along the last axis, of real and imaginary parts."""
    real, imaginary = call.tensors(2)
    inverse = call.flag("inverse")
    points = real.shape[-1]
    _check_points(call, points)
    cosine, sine = _waves(points, points, real.dtype)
    sine = sine if inverse else meta.negative(sine)
    out = (
        meta.subtract(meta.matmul(real, cosine), meta.matmul(imaginary, sine)),
        meta.add(meta.matmul(real, sine), meta.matmul(imaginary, cosine)),
    )
    return tuple(meta.divide(x, float(points)) for x in out) if inverse else out


@converter("stft")
def stft(call: OpCall) -> Any:
    """Fourier transforms of windows of a signal (batch, length): (batch, frequencies, windows, 2)."""
    x, window = call.tensors(2)
    points, hop, width = call.int("n_fft"), call.int("hop_length"), call.int("win_length")
    normalized, onesided = call.flag("normalized"), call.flag("onesided", True)
    _check_points(call, points)
    if width != points or hop < 1 or window.shape != (points,) or x.ndim != 2:
        call.refuse(
            f"win_length {width}, hop_length {hop} for n_fft {points}", "a window of n_fft points, a hop from 1"
        )
    count = max((x.shape[1] - points) // hop + 1, 0)
    call.check_size(count, points)
    positions = np.arange(int(count))[:, None] * hop + np.arange(points)
    frames = meta.multiply(meta.take(x, constant(positions), 1), window)
    cosine, sine = _waves(points // 2 + 1 if onesided else points, points, x.dtype)
    parts = meta.stack([meta.matmul(frames, cosine), meta.negative(meta.matmul(frames, sine))], -1)
    out = meta.transpose(parts, (0, 2, 1, 3))
    return meta.divide(out, math.sqrt(points)) if normalized else out


def _check_points(call: OpCall, points: Any) -> None:
    if not isinstance(points, int) or not 0 < points <= _MAX_POINTS:
        call.refuse(f"{points} points", f"1 to {_MAX_POINTS} points")
