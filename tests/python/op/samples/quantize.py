"""Samples of quantised numbers, with torch's quantisation as reference."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _range(dtype: str) -> tuple[int, int]:
    info = torch.iinfo(getattr(torch, dtype))
    return info.min, info.max


def _quantize(x: Any, scale: Any, zero_point: Any = 0, dtype: str = "int8") -> Any:
    q = torch.round(x.double() / scale) + zero_point
    return q.clamp(*_range(dtype)).to(getattr(torch, dtype))


def _dequantize(x: Any, scale: Any, zero_point: Any = 0) -> Any:
    return ((x.double() - zero_point) * scale).to(getattr(scale, "dtype", torch.float32))


def _fake(x: Any, scale: Any, zero_point: Any = 0, low: int = -128, high: int = 127) -> Any:
    """torch's own operators, which take one scale, or a vector of scales along an axis."""
    if not isinstance(scale, torch.Tensor) or scale.numel() == 1:
        return torch.fake_quantize_per_tensor_affine(x.float(), float(scale), int(zero_point), low, high).to(x.dtype)
    axis = next(i for i, n in enumerate(scale.shape) if n > 1) + x.ndim - scale.ndim
    zeros = torch.zeros(scale.numel()) + torch.as_tensor(zero_point).flatten()
    scales, zeros = scale.flatten().float(), zeros.int()
    return torch.fake_quantize_per_channel_affine(x.float(), scales, zeros, axis, low, high).to(x.dtype)


def _scale(*shape: int) -> T:
    return T(*shape, low=0.02, high=0.05)


_FLOATS = ("float32", "float64")  # torch's references round in float32
_STEPS = {"low": -40, "high": 40, "avoid": [i + 0.5 for i in range(-41, 41)]}  # no halves at a scale of 1
_8BIT = T(3, 5, dtype="uint8", low=0, high=256)

SAMPLES = [
    Sample("quantize_linear", T(3, 7, **_STEPS), 1.0, ref=_quantize),
    Sample("quantize_linear", T(3, 7, **_STEPS), 2.0, 30, "uint8", ref=_quantize),
    Sample("quantize_linear", T(4, 3), _scale(4, 1), T(4, 1, dtype="int8"), ref=_quantize, dtypes=_FLOATS),
    Sample("quantize_linear", T(5, low=-1e5, high=1e5), 1e-6, dtype="int32", ref=_quantize, dtypes=("float64",)),
    Sample("quantize_linear", T(0, 3), _scale(3), dtype="uint16", ref=_quantize),
    Sample("dequantize_linear", _8BIT, 0.03, 7, ref=_dequantize),
    Sample("dequantize_linear", _8BIT, _scale(5), T(5, dtype="uint8"), ref=_dequantize),
    Sample("dequantize_linear", T(4, dtype="int32", low=-1000, high=1000), _scale(), ref=_dequantize),
    Sample("dequantize_linear", T(2, 0, dtype="int8"), _scale(2, 1), ref=_dequantize),
    # Gradients pass straight through the rounding: tests/python/quantize compares them with torch's.
    Sample("fake_quantize", T(3, 7, **_STEPS), 1.0, -3, -20, 20, ref=_fake, grad=False, dtypes=_FLOATS),
    Sample("fake_quantize", T(4, 3, 2), _scale(4, 1, 1), 0, -16, 15, ref=_fake, grad=False, dtypes=("float32",)),
    Sample("fake_quantize", T(2, 3), _scale(3), T(3, dtype="int32"), ref=_fake, grad=False, dtypes=("float32",)),
    Sample("fake_quantize", T(0), 0.5, ref=_fake, grad=False),
]

_BAD = TypeInferenceError
ERRORS = [
    ErrorCase("quantize_linear", T(3), 0.0, error=_BAD, match="scale is 0.0; expected a number above 0"),
    ErrorCase("quantize_linear", T(3), -0.5, error=_BAD, match="scale is -0.5"),
    ErrorCase("fake_quantize", T(3), float("nan"), error=_BAD, match="scale is nan"),
    ErrorCase(
        "quantize_linear", T(3), 0.1, 256, "uint8", error=_BAD, match="zero_point is 256; expected an integer from 0"
    ),
    ErrorCase("dequantize_linear", _8BIT, 0.1, 2**31, error=_BAD, match="zero_point is 2147483648"),
    ErrorCase("quantize_linear", T(3), 0.1, 0.5, error=_BAD, match="zero_point is 0.5; expected an integer from -128"),
    ErrorCase("quantize_linear", T(3), T(2, 1), error=_BAD, match="a shape that broadcasts to x"),
    ErrorCase("quantize_linear", T(3), 0.1, 0, "int64", error=_BAD, match="the integers are int64"),
    ErrorCase("quantize_linear", T(3, dtype="int32"), 0.1, error=_BAD, match="'x' has dtype int32"),
    ErrorCase("dequantize_linear", T(3), 0.1, error=_BAD, match="the integers are float32"),
    ErrorCase("fake_quantize", T(3), 0.1, 0, 3, 3, error=_BAD, match="low is 3, high is 3; expected low < high"),
]
