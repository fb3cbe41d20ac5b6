"""Samples of Fourier transforms. Their gradients are tested in tests/python/functional/test_fft.py."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

_C = T(2, 3, 4, dtype="complex64")
_REAL = ("float32", "float64")


def _of_empty_batches(ref: Any) -> Any:
    """The reference, for batches of no signals too, which MKL refuses: those of one signal, without it."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        out = ref(
            torch.zeros([max(size, 1) for size in x.shape], dtype=x.dtype) if not x.numel() else x, *args, **kwargs
        )
        return out[tuple(slice(0) if size == 0 else slice(None) for size in x.shape)]

    return run


@_of_empty_batches
def _c2c(x: Any, axes: Any, scale: str = "none", forward: bool = True) -> Any:
    norm = {"none": "backward", "root": "ortho", "size": "forward"}[scale]
    return torch.fft.fftn(x, dim=axes, norm=norm) if forward else torch.fft.ifftn(x, dim=axes, norm="forward")


@_of_empty_batches
def _r2c(x: Any, axes: Any, scale: str = "none", onesided: bool = True) -> Any:
    return torch.fft.rfftn(x, dim=axes) if onesided else torch.fft.fftn(x, dim=axes)


@_of_empty_batches
def _c2r(x: Any, axes: Any, last_size: int, scale: str = "none") -> Any:
    sizes = [*(x.shape[axis] for axis in axes[:-1]), last_size]
    return torch.fft.irfftn(x, sizes, axes, norm="forward")


SAMPLES = [
    Sample("fft_c2c", _C, axes=(1,), ref=_c2c),
    Sample("fft_c2c", _C, axes=(2, 0), forward=False, ref=_c2c),
    Sample("fft_c2c", _C, axes=(-1, 1), scale="root", ref=_c2c),
    Sample("fft_r2c", T(2, 3, 4), axes=(0, 2), ref=_r2c, dtypes=_REAL, grad=False),
    Sample("fft_r2c", T(5), axes=(0,), onesided=False, ref=_r2c, dtypes=_REAL[:1], grad=False),
    Sample("fft_c2r", _C, axes=(1, 2), last_size=7, ref=_c2r),
    Sample("fft_c2r", T(4, 1, dtype="complex128"), axes=(0,), last_size=6, ref=_c2r),
]

ERRORS = [
    ErrorCase("fft_c2c", T(3), axes=(0,), error=TypeInferenceError, match="'x' has dtype float32; expected complex64"),
    ErrorCase("fft_r2c", _C, axes=(0,), error=TypeInferenceError, match="'x' has dtype complex64; expected float32"),
    ErrorCase("fft_r2c", T(3, dtype="float16"), axes=(0,), error=TypeInferenceError, match="'x' has dtype float16"),
    ErrorCase(
        "fft_c2c", _C, axes=(0, -3), error=TypeInferenceError, match="names an axis twice; expected distinct axes"
    ),
    ErrorCase("fft_c2c", _C, axes=(3,), error=TypeInferenceError, match="axis 3 is out of range for rank 3"),
    ErrorCase(
        "fft_c2c", _C, axes=(), error=TypeInferenceError, match="no axes; expected at least one axis to transform"
    ),
    ErrorCase("fft_r2c", T(2, 0), axes=(1,), error=TypeInferenceError, match="axis 1 of shape (2, 0) has no points"),
    ErrorCase("fft_c2r", _C, axes=(2,), last_size=5, error=TypeInferenceError, match="expected 3 frequencies"),
    ErrorCase(
        "fft_c2r", _C, axes=(2,), last_size=0, error=TypeInferenceError, match="last_size is 0; expected at least"
    ),
]
