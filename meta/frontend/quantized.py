"""Scales and zero points in models of other systems: of all elements, or of each element of an axis.

Those that are known when a model is read are checked then. An integer q represents (q - zero point) * scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, TypeInferenceError
from meta.functional._checks import as_dtype
from meta.ir.expr import Constant
from meta.ir.printer import to_array
from meta.modes import suspended
from meta.tracing.symbol import Symbol


def scale_problem(name: str, scale: npt.NDArray[Any]) -> str | None:
    """What is wrong with scales that were read; None if they are positive and finite."""
    values = scale.astype(np.float32)
    wrong = ~((values > 0) & np.isfinite(values))
    return f"'{name}' has the scale {values[wrong][0]}" if wrong.any() else None


def check_scale(subject: str, scale: Any) -> None:
    """Raise ArgumentError for a known scale with elements that are not positive and finite."""
    value = scale
    if isinstance(scale, Symbol) and isinstance(scale.atom, Constant):
        value = to_array(scale.atom.value)
    if isinstance(scale, NDArray):
        with suspended():  # the value that a parameter has now
            value = scale.numpy()
    problem = scale_problem("scale", np.asarray(value)) if isinstance(value, (np.ndarray, float)) else None
    if problem is not None:
        raise ArgumentError(subject, problem, "positive finite scales", "quantise the model again")


def spread(value: Any, x: Tensor, axis: int) -> Any:
    """A scale or zero point, of all elements, of each element of an axis, or of shape of x's rank, to broadcast."""
    if isinstance(value, (int, float)) or value.ndim == 0 or value.ndim == x.ndim > 1:
        return value
    if value.ndim == 1 and isinstance(value.shape[0], int) and value.shape[0] == 1:
        return meta.reshape(value, ())
    if value.ndim != 1:
        problem = f"a scale or zero point of shape {value.shape}"
        raise TypeInferenceError("", problem, "one number, or one an element of the axis")
    return meta.reshape(value, tuple(value.shape[0] if i == axis % x.ndim else 1 for i in range(x.ndim)))


def quantized(subject: str, x: Tensor, scale: Any, zero_point: Any, axis: int, dtype: str) -> Any:
    """x as integers."""
    check_scale(subject, scale)
    zero_point = 0 if zero_point is None else spread(zero_point, x, axis)
    return meta.quantize_linear(x, spread(scale, x, axis), zero_point, dtype)


def dequantized(subject: str, x: Tensor, scale: Any, zero_point: Any, axis: int, dtype: str) -> Any:
    """The values of integers, in a floating dtype."""
    check_scale(subject, scale)
    zero_point = 0 if zero_point is None else spread(zero_point, x, axis)
    scale = scale if isinstance(scale, (int, float)) else spread(as_dtype(scale, dtype), x, axis)
    return as_dtype(meta.dequantize_linear(x, scale, zero_point), dtype)
