"""Discrete Fourier transforms, named as in torch.fft and numpy.fft.

Signals are along the last axis, the last two or the last n axes unless `axis` or `axes` names others. Every function
runs on arrays and on traced values, and is differentiable to any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.functional._numpy import takes_numpy
from meta.lazy import exports

if TYPE_CHECKING:
    from meta.functional.fft import fft as fft
    from meta.functional.fft import fft2 as fft2
    from meta.functional.fft import fftfreq as fftfreq
    from meta.functional.fft import fftn as fftn
    from meta.functional.fft import fftshift as fftshift
    from meta.functional.fft import hfft as hfft
    from meta.functional.fft import hfft2 as hfft2
    from meta.functional.fft import hfftn as hfftn
    from meta.functional.fft import ifft as ifft
    from meta.functional.fft import ifft2 as ifft2
    from meta.functional.fft import ifftn as ifftn
    from meta.functional.fft import ifftshift as ifftshift
    from meta.functional.fft import ihfft as ihfft
    from meta.functional.fft import ihfft2 as ihfft2
    from meta.functional.fft import ihfftn as ihfftn
    from meta.functional.fft import irfft as irfft
    from meta.functional.fft import irfft2 as irfft2
    from meta.functional.fft import irfftn as irfftn
    from meta.functional.fft import rfft as rfft
    from meta.functional.fft import rfft2 as rfft2
    from meta.functional.fft import rfftfreq as rfftfreq
    from meta.functional.fft import rfftn as rfftn
else:
    _NAMES = (
        "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
        "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
    )  # fmt: skip
    __getattr__, __dir__ = exports(__name__, {"meta.functional.fft": _NAMES}, takes_numpy)
