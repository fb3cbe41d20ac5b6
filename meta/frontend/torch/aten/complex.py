"""Complex numbers and their parts, Fourier transforms. The conjugate of a real tensor is the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, direct, into

_TRANSFORMS = ("fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn",
               "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq",
               "rfftn")  # fmt: skip
_SCALES: tuple[Any, ...] = ("none", "root", "size")
"""Names of the scales that ATen numbers."""

ROWS: Rows = {
    **{f"fft_{name}": f"fft.{name}" for name in _TRANSFORMS},
    "angle": "angle", "complex": direct("complex", real="re", imag="im"), "conj": "conj", "conj_physical": "conj",
    "_conj": "conj", "_conj_physical": "conj", "imag": "imag", "isreal": "isreal", "linalg_eig": "eig",
    "polar": direct("polar", abs="radius", angle="phase"), "real": "real", "resolve_conj": "copy",
    "resolve_neg": "copy", "view_as_complex": "view_as_complex", "view_as_real": "view_as_real",
}  # fmt: skip


@into(ROWS)
def _fft_c2c(self: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    return meta.fft_c2c(self, dim, _SCALES[normalization], forward)


@into(ROWS)
def _fft_r2c(self: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    return meta.fft_r2c(self, dim, _SCALES[normalization], onesided)


@into(ROWS)
def _fft_c2r(self: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    return meta.fft_c2r(self, dim, last_dim_size, _SCALES[normalization])


@into(ROWS)
def linalg_eigvals(self: Any) -> Any:
    return meta.eig(self)[0]


@into(ROWS, "mH", "adjoint", "matrix_H")
def mH(self: Any) -> Any:
    """The conjugate transpose of matrices."""
    return meta.conj(meta.swap_axis(self, -2, -1))
