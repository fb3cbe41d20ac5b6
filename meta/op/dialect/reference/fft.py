"""Fourier transforms in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meta.op.dialect.reference import plain

Array = Any
_FORWARD: Mapping[str, Any] = {"none": "backward", "root": "ortho", "size": "forward"}
_BACKWARD: Mapping[str, Any] = {"none": "forward", "root": "ortho", "size": "backward"}
"""NumPy's names of the scales, which say which direction is divided."""


def c2c(x: Array, axes: tuple[int, ...], scale: str, forward: bool) -> Array:
    if forward:
        return np.fft.fftn(x, axes=axes, norm=_FORWARD[scale])
    return np.fft.ifftn(x, axes=axes, norm=_BACKWARD[scale])


def r2c(x: Array, axes: tuple[int, ...], scale: str, onesided: bool) -> Array:
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return transform(x, axes=axes, norm=_FORWARD[scale])


def c2r(x: Array, axes: tuple[int, ...], last_size: int, scale: str) -> Array:
    sizes = [*(x.shape[axis] for axis in axes[:-1]), last_size]
    return np.fft.irfftn(x, sizes, axes, norm=_BACKWARD[scale])


plain({"fft_c2c": c2c, "fft_c2r": c2r, "fft_r2c": r2c})
