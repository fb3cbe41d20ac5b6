"""Samples of matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _matmul(x1: Any, x2: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    return torch.matmul(x1.mT if transpose_a else x1, x2.mT if transpose_b else x2)


def _dense(x: Any, w: Any, bias: Any = None) -> Any:
    return F.linear(x, w, bias)


def _dequantize_weight(w: Any, scale: Any, dtype: str = "float32") -> Any:
    """By a loop over weights in place of shapes and vectors."""
    rows, groups = w.reshape(w.shape[:-1].numel(), w.shape[-1]), scale.shape[-1]
    size = w.shape[-1] // groups * (1 if w.dtype == torch.int8 else 2)
    out = torch.zeros((rows.shape[0], size * groups), dtype=torch.float64)
    for k in range(size * groups):
        group, within = divmod(k, size)
        if w.dtype == torch.int8:
            integers = rows[:, k].long()
        else:
            byte = rows[:, group * (size // 2) + within % (size // 2)].long()
            integers = (byte // 16 if within >= size // 2 else byte % 16) - 8
        out[:, k] = integers * scale.reshape(rows.shape[0], groups)[:, group].double()
    return out.reshape(*w.shape[:-1], size * groups).to(getattr(torch, dtype))


def _quantized_dense(x: Any, w: Any, scale: Any, bias: Any = None) -> Any:
    weights = _dequantize_weight(w, scale, "float64").to(x.dtype)
    return torch.nn.functional.linear(x, weights, bias)


def _dense_int8(x: Any, w: Any, columns: int) -> Any:
    panels, quads, width, _ = w.shape
    rows = torch.movedim(w, 2, 1).reshape(panels * width, quads * 4)[:columns, : x.shape[-1]]
    return F.linear(x.double(), rows.double()).int()


def _bytes(*shape: int) -> T:
    return T(*shape, dtype="uint8", low=0, high=256)


def _int8(*shape: int) -> T:
    return T(*shape, dtype="int8", low=-127, high=128)


def _scale(*shape: int) -> T:
    return T(*shape, low=0.01, high=0.1)


SAMPLES = [
    Sample("dense", T(3, 4), T(5, 4), ref=_dense),
    Sample("dense", T(3, 4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(2, 3, 4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(4), T(5, 4), T(5), ref=_dense),
    Sample("dense", T(0, 4), T(5, 4), ref=_dense),
    Sample("dense", T(2, 0), T(5, 0), T(5), ref=_dense),
    Sample("dense", T(64, 40), T(48, 40), T(48), ref=_dense, grad=False, id="large"),
    Sample("matmul", T(3, 4), T(4, 5), ref=_matmul),
    Sample("matmul", T(4, 3), T(4, 5), transpose_a=True, ref=_matmul),
    Sample("matmul", T(3, 4), T(5, 4), transpose_b=True, ref=_matmul),
    Sample("matmul", T(4, 3), T(5, 4), transpose_a=True, transpose_b=True, ref=_matmul),
    Sample("matmul", T(2, 3, 4), T(2, 4, 5), ref=_matmul),
    Sample("matmul", T(2, 1, 4, 3), T(3, 5, 4), transpose_a=True, transpose_b=True, ref=_matmul),
    Sample("matmul", T(3, 4), T(2, 4, 5), ref=_matmul),
    Sample("matmul", T(4), T(4), ref=_matmul),
    Sample("matmul", T(4), T(2, 4, 3), ref=_matmul),
    Sample("matmul", T(2, 3, 4), T(4), ref=_matmul),
    Sample("matmul", T(2, 4, 3), T(4), transpose_a=True, ref=_matmul),
    Sample("matmul", T(4), T(3, 4), transpose_b=True, ref=_matmul),
    Sample("matmul", T(1, 1), T(1, 1), ref=_matmul),
    Sample("matmul", T(0, 4), T(4, 5), ref=_matmul),
    Sample("matmul", T(3, 0), T(0, 5), ref=_matmul),
    Sample("matmul", T(64, 48), T(48, 40), ref=_matmul, grad=False, id="large"),
    Sample("matmul", T(2, 48, 40), T(48, 40), transpose_a=True, ref=_matmul, grad=False, id="large_batch"),
    Sample("dequantize_weight", _int8(3, 8), _scale(3, 1), ref=_dequantize_weight),
    Sample("dequantize_weight", _int8(2, 3, 8), _scale(2, 3, 2), dtype="float64", ref=_dequantize_weight),
    Sample("dequantize_weight", _bytes(3, 8), _scale(3, 4), ref=_dequantize_weight),
    Sample("dequantize_weight", _bytes(6), _scale(1), dtype="float16", ref=_dequantize_weight),
    Sample("dequantize_weight", _bytes(0, 6), _scale(0, 2), ref=_dequantize_weight),
    Sample("dense_int8", T(3, 6, dtype="uint8", high=128), _int8(1, 2, 16, 4), 5, ref=_dense_int8),
    Sample("dense_int8", _bytes(17, 7), _int8(2, 2, 32, 4), 33, ref=_dense_int8),
    Sample("dense_int8", _int8(2, 5, 8), _int8(2, 2, 32, 4), 64, ref=_dense_int8),
    Sample("dense_int8", _bytes(0, 4), _int8(1, 1, 16, 4), 16, ref=_dense_int8),
    Sample("quantized_dense", T(1, 8), _int8(3, 8), _scale(3, 1), ref=_quantized_dense),
    Sample("quantized_dense", T(2, 3, 8), _int8(5, 8), _scale(5, 2), T(5), ref=_quantized_dense),
    Sample("quantized_dense", T(2, 8), _bytes(3, 4), _scale(3, 2), ref=_quantized_dense),
    Sample("quantized_dense", T(8), _bytes(3, 4), _scale(3, 1), T(3), ref=_quantized_dense),
    Sample("quantized_dense", T(0, 8), _bytes(3, 4), _scale(3, 2), ref=_quantized_dense),
    Sample("quantized_dense", T(1, 256), _bytes(9, 128), _scale(9, 4), ref=_quantized_dense, grad=False, id="vectors"),
    Sample(
        "quantized_dense", T(1, 256), _int8(9, 256), _scale(9, 1), T(9), ref=_quantized_dense, grad=False, id="int8"
    ),
    Sample(
        "quantized_dense", T(9, 96), _bytes(40, 48), _scale(40, 3), T(40), ref=_quantized_dense, grad=False, id="rows"
    ),
]

ERRORS = [
    ErrorCase("dense", T(3, 4), T(5, 3), error=TypeInferenceError, match="equal last sizes"),
    ErrorCase("dense", T(3, 4), T(4), error=TypeInferenceError, match="w of two"),
    ErrorCase("dense", T(3, 4), T(5, 4), T(4), error=TypeInferenceError, match="'bias' has shape (4,)"),
    ErrorCase("dense", T(3, 4), T(5, 4, dtype="float64"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("matmul", T(2, 3), T(4, 5), error=TypeInferenceError, match="contract 3 with 4"),
    ErrorCase("matmul", T(2, 3), T(3, 5), transpose_a=True, error=TypeInferenceError, match="transpose_a=True"),
    ErrorCase("matmul", T(), T(3, 5), error=TypeInferenceError, match="at least one axis each"),
    ErrorCase("matmul", T(3), T(3, 5), transpose_a=True, error=TypeInferenceError, match="to transpose"),
    ErrorCase("matmul", T(2, 3), T(3, 5, dtype="int32"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("matmul", T(2, 2, 3), T(3, 3, 5), error=TypeInferenceError, match="do not broadcast"),
    ErrorCase("dequantize_weight", T(3, 8), _scale(3, 1), error=TypeInferenceError, match="'w' is float32"),
    ErrorCase("dequantize_weight", _int8(3, 8), _scale(3, 3), error=TypeInferenceError, match="groups that divide"),
    ErrorCase("dequantize_weight", _int8(3, 8), _scale(3), error=TypeInferenceError, match="scales (3, groups)"),
    ErrorCase("dequantize_weight", _int8(3, 8), _int8(3, 1), error=TypeInferenceError, match="'scale' has dtype int8"),
    ErrorCase(
        "dequantize_weight", _int8(3, 8), _scale(3, 1), dtype="int32", error=TypeInferenceError, match="floating"
    ),
    ErrorCase("dense_int8", _bytes(4), _int8(1, 1, 16, 4), 16, error=TypeInferenceError, match="(..., m, k)"),
    ErrorCase("dense_int8", _bytes(1, 4), _bytes(1, 1, 16, 4), 16, error=TypeInferenceError, match="'w' has dtype"),
    ErrorCase("dense_int8", _bytes(1, 4), _int8(16, 4), 16, error=TypeInferenceError, match="panel size"),
    ErrorCase("dense_int8", _bytes(1, 4), _int8(1, 1, 16, 4), 17, error=TypeInferenceError, match="1 to 16"),
    ErrorCase("quantized_dense", T(1, 8), _bytes(3, 8), _scale(3, 1), error=TypeInferenceError, match="16 elements"),
    ErrorCase("quantized_dense", T(1, 8), _int8(8), _scale(1), error=TypeInferenceError, match="w of two"),
    ErrorCase(
        "quantized_dense", T(1, 8), _int8(3, 8), _scale(3, 1), T(4), error=TypeInferenceError, match="'bias' has"
    ),
    ErrorCase(
        "quantized_dense",
        T(1, 8, dtype="int32"),
        _int8(3, 8),
        _scale(3, 1),
        error=TypeInferenceError,
        match="'x' has dtype int32",
    ),
]
