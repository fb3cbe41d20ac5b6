"""Fourier transforms by ATen: MKL or pocketfft on the CPU, cuFFT on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meta.op.dialect.torch import DIALECT

_aten = torch.ops.aten
_SCALES = {"none": 0, "root": 1, "size": 2}
"""ATen's numbers."""


def _from_front(x: Any, axes: tuple[int, ...]) -> list[int]:
    """ATen's kernels do not count axes from the end."""
    return [axis % x.ndim for axis in axes]


def _without_elements(kernel: Callable[..., None]) -> Callable[..., None]:
    """The kernel with results of zeros for tensors without elements, which MKL refuses."""

    def run(x: Any, *args: Any, out: Any) -> None:
        if x.numel():
            kernel(x, *args, out=out)
        else:
            out.zero_()

    return run


def c2c(x: Any, axes: tuple[int, ...], scale: str, forward: bool, *, out: Any) -> None:
    _aten._fft_c2c.out(x, _from_front(x, axes), _SCALES[scale], forward, out=out)


def r2c(x: Any, axes: tuple[int, ...], scale: str, onesided: bool, *, out: Any) -> None:
    _aten._fft_r2c.out(x, _from_front(x, axes), _SCALES[scale], onesided, out=out)


def c2r(x: Any, axes: tuple[int, ...], last_size: int, scale: str, *, out: Any) -> None:
    _aten._fft_c2r.out(x, _from_front(x, axes), _SCALES[scale], last_size, out=out)


DIALECT.implement("fft_c2c", _without_elements(c2c))
DIALECT.implement("fft_r2c", _without_elements(r2c))
DIALECT.implement("fft_c2r", _without_elements(c2r))
