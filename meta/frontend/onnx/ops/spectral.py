"""Fourier transforms, and windows and filters for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, row
from meta.frontend.onnx.ops._values import axis_of, dtype_of, host_dtype, number, wide
from meta.functional._checks import as_dtype
from meta.limits import MAX_FOLDED


def _complex(x: Tensor) -> Any:
    """(..., 1) or (..., 2) as real or complex numbers (...)."""
    if x.shape[-1] not in (1, 2):
        raise TypeInferenceError(
            "", f"the last axis of {x.shape} has {x.shape[-1]} elements", "1 (real) or 2 (complex)"
        )
    return meta.squeeze(x, -1) if x.shape[-1] == 1 else meta.view_as_complex(x)


def _transformed(x: Tensor, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis = axis_of("DFT", axis, x.ndim)
    n = None if length is None else int(number(length, "dft_length"))
    signal = _complex(wide(x))
    if not inverse:
        y = meta.fft.rfft(signal, n, axis) if onesided else meta.fft.fft(signal, n, axis)
        return as_dtype(meta.view_as_real(y), x.dtype)
    if onesided:
        return as_dtype(meta.expand_dims(meta.fft.irfft(signal, n, axis), -1), x.dtype)
    return as_dtype(meta.view_as_real(meta.fft.ifft(signal, n, axis)), x.dtype)


@row("DFT", since=20, constants=("dft_length", "axis"))
def dft(
    node: Node, input: Tensor, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    """input: (..., 1) or (..., 2), real and imaginary parts. A longer dft_length adds zeros at the end."""
    place = -2 if axis is None else int(number(axis, "axis"))
    return _transformed(input, dft_length, place, inverse, onesided)


@row("DFT", since=17, constants=("dft_length",))
def dft_17(
    node: Node, input: Tensor, dft_length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Any:
    return _transformed(input, dft_length, axis, inverse, onesided)


@row("STFT", since=17, constants=("frame_step", "frame_length"))
def stft(
    node: Node, signal: Tensor, frame_step: Any, window: Tensor | None = None, frame_length: Any = None, *,
    onesided: int = 1,
) -> Any:  # fmt: skip
    """Transforms of frames: (batch, length, 1 or 2) -> (batch, frames, bins, 2)."""
    length = signal.shape[1]
    if frame_length is not None:
        length = int(number(frame_length, "frame_length"))
    elif window is not None:
        length = window.shape[0]
    step = int(number(frame_step, "frame_step"))
    frames = meta.unfold(signal, 1, length, step)  # (batch, frames, parts, length)
    if window is not None:
        frames = meta.multiply(frames, as_dtype(window, signal.dtype))
    parts = meta.transpose(frames, (0, 1, 3, 2))
    return _transformed(parts, None, 2, 0, onesided and parts.shape[3] == 1)


# --- windows ---------------------------------------------------------------------------------------------------------


def _cosines(name: str, *coefficients: float) -> None:
    """A window of cosines of multiples of the angle, with alternating signs."""

    def convert(node: Node, size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        count = int(number(size, "size"))
        if not 0 <= count <= MAX_FOLDED:
            raise TypeInferenceError(name, f"size is {count}", f"0 to {MAX_FOLDED}")
        angles = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        terms = [(-1) ** i * c * np.cos(i * angles) for i, c in enumerate(coefficients)]
        return np.asarray(sum(terms)).astype(host_dtype(dtype_of(name, output_datatype)))

    row(name, since=17, constants=("size",))(convert)


_cosines("HannWindow", 0.5, 0.5)
_cosines("HammingWindow", 25 / 46, 21 / 46)
_cosines("BlackmanWindow", 0.42, 0.5, 0.08)


@row("MelWeightMatrix", since=17,
     constants=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"))  # fmt: skip
def mel_weight_matrix(
    node: Node, num_mel_bins: Any, dft_length: Any, sample_rate: Any, lower_edge_hertz: Any, upper_edge_hertz: Any, *,
    output_datatype: int = 1,
) -> Any:  # fmt: skip
    """(dft_length // 2 + 1, num_mel_bins): triangles whose corners are evenly spaced in mel, at whole bins."""
    bins, length = int(number(num_mel_bins, "num_mel_bins")), int(number(dft_length, "dft_length"))
    if not 0 <= bins * (length // 2 + 1) <= MAX_FOLDED:
        raise TypeInferenceError(
            "MelWeightMatrix", f"{bins} bins for {length} samples", f"at most {MAX_FOLDED} weights"
        )
    mel: Callable[[float], float] = lambda hertz: 2595 * np.log10(1 + hertz / 700)  # noqa: E731
    low, high = (mel(float(number(v, "an edge"))) for v in (lower_edge_hertz, upper_edge_hertz))
    steps = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    hertz = 700 * (10 ** (steps / 2595) - 1)
    corners = ((length + 1) * hertz // float(number(sample_rate, "sample_rate"))).astype("int64")
    out = np.zeros((length // 2 + 1, bins))
    for i, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        if left == centre:
            out[centre, i] = 1.0
        else:
            out[left : centre + 1, i] = np.arange(centre - left + 1) / (centre - left)
        if right > centre:
            out[centre:right, i] = np.arange(right - centre, 0, -1) / (right - centre)
    return out.astype(host_dtype(dtype_of("MelWeightMatrix", output_datatype)))
