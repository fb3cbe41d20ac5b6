"""Samples of neural-network operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from meta.errors import TypeInferenceError
from meta.op.dialect.reference.random import bernoulli
from meta.testing.samples import ErrorCase, Sample, T


def softmax(x: Any, axis: int = -1) -> Any:
    return torch.softmax(x, axis)


def softmax_dx(y: Any, dy: Any, axis: int = -1) -> Any:
    return y * (dy - (y * dy).sum(axis, keepdim=True))


def log_softmax(x: Any, axis: int = -1) -> Any:
    return torch.log_softmax(x, axis)


def log_softmax_dx(y: Any, dy: Any, axis: int = -1) -> Any:
    return dy - torch.exp(y) * dy.sum(axis, keepdim=True)


def bias_add(x: Any, bias: Any, axis: int = 1) -> Any:
    return x + bias.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])


def dropped(result: Any, x: Any, key: Any, p: float = 0.5) -> None:
    """The share of zeros, the mask that defines them, and the scale of what is kept."""
    y, mask = (r.astype(np.float64) for r in result)
    share = mask.mean() if mask.size else 1 - p
    assert abs(share - (1 - p)) <= 4 * np.sqrt(p * (1 - p) / max(mask.size, 1)), share
    np.testing.assert_array_equal(mask, bernoulli(key, x.shape, 1 - p, "bool"))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    np.testing.assert_allclose(y, x.astype(np.float64) * mask * scale, rtol=1e-2, atol=1e-6)


def masked(dy: Any, mask: Any, p: float) -> Any:
    return dy * mask * (0.0 if p == 1 else 1 / (1 - p))


FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax}
BACKWARD = {"softmax_dx": softmax_dx, "log_softmax_dx": log_softmax_dx}
KEY = T(2, dtype="int64", low=0, high=1000)
WIDE = T(3, 4, 5, low=-5, high=5)

SAMPLES = [
    *(Sample(op, WIDE, ref=ref) for op, ref in FUNCTIONS.items()),
    *(Sample(op, WIDE, axis=axis, ref=ref) for op, ref in FUNCTIONS.items() for axis in (0, 1, -1)),
    *(Sample(op, T(2, 130, low=-100, high=100), ref=ref) for op, ref in FUNCTIONS.items()),
    *(Sample(op, T(), ref=ref) for op, ref in FUNCTIONS.items()),
    *(Sample(op, T(1), ref=ref) for op, ref in FUNCTIONS.items()),
    *(Sample(op, T(2, 1, 3, 1), axis=1, ref=ref) for op, ref in FUNCTIONS.items()),
    *(Sample(op, T(3, 4, 5), T(3, 4, 5), axis=axis, ref=ref) for op, ref in BACKWARD.items() for axis in (-1, 1)),
    *(Sample(op, T(2, 130), T(2, 130), ref=ref) for op, ref in BACKWARD.items()),
    Sample("bias_add", T(2, 3, 4, 5), T(3), ref=bias_add),
    Sample("bias_add", T(2, 4), T(4), axis=-1, ref=bias_add),
    Sample("bias_add", T(3), T(3), axis=0, ref=bias_add),
    *(Sample("dropout", T(50, 60), KEY, p, check=dropped) for p in (0.0, 0.1, 0.5, 1.0)),
    Sample("dropout", T(0, 3), KEY, check=dropped),
    *(Sample("dropout_dx", T(3, 5), T(3, 5, dtype="bool"), p, ref=masked) for p in (0.0, 0.3, 1.0)),
]  # fmt: skip
ERRORS = [
    ErrorCase("softmax", T(3), axis=5, error=TypeInferenceError, match="axis 5 is out of range"),
    ErrorCase("softmax", T(3, dtype="int64"), error=TypeInferenceError, match="'x' has dtype int64"),
    ErrorCase("softmax_dx", T(3), T(4), error=TypeInferenceError, match="'y' has shape (3,), 'dy' has (4,)"),
    ErrorCase("log_softmax", T(3, 4), axis=-3, error=TypeInferenceError, match="axis -3 is out of range"),
    ErrorCase("bias_add", T(2, 3), T(2), error=TypeInferenceError, match="'bias' has shape (2,), 'x' (2, 3)"),
    ErrorCase("bias_add", T(2, 3), T(3, 1), error=TypeInferenceError, match="'bias' has shape (3, 1)"),
    ErrorCase(
        "bias_add", T(2, 3, dtype="bool"), T(3, dtype="bool"), error=TypeInferenceError, match="'x' has dtype bool"
    ),
    ErrorCase("softmax_dx", T(3, dtype="int64"), T(3), error=TypeInferenceError, match="'y' has dtype int64"),
    ErrorCase("dropout", T(3), KEY, 1.5, error=TypeInferenceError, match="p is 1.5"),
    ErrorCase("dropout", T(3), T(2), error=TypeInferenceError, match="'key' is Tensor"),
    ErrorCase("dropout", T(3, dtype="int64"), KEY, error=TypeInferenceError, match="'x' has dtype int64"),
    ErrorCase("dropout_dx", T(3), T(3), 0.5, error=TypeInferenceError, match="'mask' has dtype float32"),
]
