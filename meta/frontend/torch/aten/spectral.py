"""Complex numbers and their parts, Fourier transforms and windows. The conjugate of a real tensor is the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.device import Device
from meta.dtype import is_complex
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten.backward import forward

_TRANSFORMS = ("fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn",
               "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq",
               "rfftn")  # fmt: skip
_SCALES: tuple[Any, ...] = ("none", "root", "size")
"""Names of the scales that ATen numbers."""

rows({
    **{f"fft_{name}": f"fft.{name}" for name in _TRANSFORMS},
    "angle": "angle", "complex": direct("complex", real="re", imag="im"), "conj": "conj", "conj_physical": "conj",
    "_conj": "conj", "_conj_physical": "conj", "imag": "imag", "isreal": "isreal", "linalg_eig": "eig",
    "polar": direct("polar", abs="radius", angle="phase"), "real": "real", "resolve_conj": "copy",
    "resolve_neg": "copy", "view_as_complex": "view_as_complex", "view_as_real": "view_as_real",
    "_fft_c2c": lambda self, dim, normalization, forward: meta.fft_c2c(self, dim, _SCALES[normalization], forward),
    "_fft_r2c": lambda self, dim, normalization, onesided: meta.fft_r2c(self, dim, _SCALES[normalization], onesided),
    "_fft_c2r": lambda self, dim, normalization, last_dim_size:
        meta.fft_c2r(self, dim, last_dim_size, _SCALES[normalization]),
    "linalg_eigvals": lambda self: meta.eig(self)[0],
    # The conjugate transpose of matrices.
    **dict.fromkeys(("mH", "adjoint", "matrix_H"), lambda self: meta.conj(meta.swap_axis(self, -2, -1))),
})  # fmt: skip
_Shape = Callable[[int], "np.ndarray[Any, Any]"]
"""The symmetric window of a number of points, in float64."""


def _window(shape: _Shape, window_length: int, periodic: bool, dtype: Any, device: Any) -> Any:
    """A window. periodic: without its last point, which repeats the first in the next period."""
    points = shape(window_length + 1)[:-1] if periodic and window_length > 1 else shape(window_length)
    return meta.array(points, dtype or "float32", device=device or "cpu")


def _plain_window(shape: _Shape) -> Callable[..., Any]:
    def row(
        window_length: int, periodic: bool = True, *, dtype: str | None = None, device: Device | str | None = None
    ) -> Any:
        return _window(shape, window_length, periodic, dtype, device)

    return row


row("hann_window")(_plain_window(np.hanning))
row("bartlett_window")(_plain_window(np.bartlett))
row("blackman_window")(_plain_window(np.blackman))


@row()
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    device: Any = None,
) -> Any:  # fmt: skip
    def shape(count: int) -> np.ndarray[Any, Any]:
        return alpha - beta * np.cos(2 * np.pi * np.arange(count) / (count - 1)) if count > 1 else np.ones(count)

    return _window(shape, window_length, periodic, dtype, device)


@row()
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None
) -> Any:
    return _window(lambda count: np.kaiser(count, beta), window_length, periodic, dtype, device)


@row()
def stft(
    self: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    """Spectra (batch, frequencies, frames) of frames of `n_fft` samples, without padding at the ends, which the Python
    function of torch adds before."""
    width, step = win_length or n_fft, hop_length or n_fft // 4
    if align_to_window or not 0 < width <= n_fft or step < 1 or self.ndim not in (1, 2):
        found = f"win_length {width}, hop_length {step} and align_to_window {align_to_window} for {self.ndim} axes"
        raise ArgumentError("stft", found, f"windows of 1 to {n_fft} samples in the middle of frames, one or two axes")
    x = self if self.ndim == 2 else meta.expand_dims(self, 0)
    frames = forward("unfold")(x, 1, n_fft, step)
    if window is not None or width < n_fft:
        frames = frames * _weights(window, width, n_fft, x.dtype, x.device)
    transform = meta.fft.fft if onesided is False or is_complex(frames.dtype) else meta.fft.rfft
    spectra = meta.swap_axis(transform(frames, norm="ortho" if normalized else "backward"), 1, 2)
    spectra = spectra if self.ndim == 2 else meta.squeeze(spectra, (0,))
    return spectra if return_complex is not False else meta.view_as_real(spectra)


def _weights(window: Any, width: int, n_fft: int, dtype: str, device: Device | str) -> Any:
    """The weights of the samples of a frame. window: of `width` samples in its middle, None: ones."""
    weights = meta.ones((width,), dtype, device) if window is None else window
    left = (n_fft - width) // 2
    return meta.pad(weights, (left, n_fft - width - left)) if width < n_fft else weights


@row()
def istft(
    self: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None, return_complex: bool = False,
) -> Any:  # fmt: skip
    """Signals of least squares (D. Griffin and J. Lim, 1984): the sums of overlapping frames times their windows, over
    the sums of the windows' squares. Where those are 0, torch raises an error and the result is not finite."""
    width, step = win_length or n_fft, hop_length or n_fft // 4
    if not 0 < width <= n_fft or not 0 < step <= width or self.ndim not in (2, 3) or not is_complex(self.dtype):
        found = f"win_length {width} and hop_length {step} for {self.dtype} of {self.ndim} axes"
        raise ArgumentError("istft", found, f"hops of 1 to win_length, at most {n_fft}, two or three axes, complex")
    spectra = meta.swap_axis(self if self.ndim == 3 else meta.expand_dims(self, 0), 1, 2)
    batch, count, frequencies = spectra.shape
    if onesided is None:
        onesided = frequencies != n_fft
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = meta.fft.ifft(spectra, norm=norm)
    else:
        half = spectra if onesided else spectra[:, :, : n_fft // 2 + 1]
        frames = meta.fft.irfft(half, n_fft, norm=norm)
    weights = _weights(window, width, n_fft, frames.dtype, frames.device)
    total = n_fft + step * (count - 1)
    overlapped = forward("unfold_backward")
    signal = overlapped(frames * weights, (batch, total), 1, n_fft, step)
    squares = meta.broadcast_to(weights * weights, (1, count, n_fft))
    envelope = overlapped(squares, (1, total), 1, n_fft, step)
    first = n_fft // 2 if center else 0
    last = total - first if length is None else first + length
    missing = last - total if isinstance(last, int) and isinstance(total, int) else 0
    signal = signal[:, first : last if missing <= 0 else total] / envelope[:, first : last if missing <= 0 else total]
    signal = signal if missing <= 0 else meta.pad(signal, ((0, 0), (0, missing)))
    return signal if self.ndim == 3 else meta.squeeze(signal, (0,))
