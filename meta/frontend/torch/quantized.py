"""torch.ops.quantized_decomposed: what the quantisation of exported programs (PT2E, torchao) writes into them.

A number q from quant_min to quant_max, stored in a dtype, represents (q - zero point) * scale. Each function serves the
overloads with numbers and with tensors for scales and zero points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import meta
from meta._generated.methods import Tensor
from meta.dtype import canonical, int_range
from meta.errors import ArgumentError, value_text
from meta.frontend.quantized import dequantized, quantized


def _checked(name: str, zero_point: Any, low: int, high: int, dtype: Any) -> str:
    """The name of the dtype. Raises ArgumentError for bounds outside of it, and a zero point outside of the bounds."""
    stored = canonical(dtype, name)
    least, most = int_range(stored)
    if not least <= low < high <= most:
        raise ArgumentError(name, f"quant_min is {low}, quant_max {high}", f"bounds in the range of {stored}")
    if isinstance(zero_point, int) and not low <= zero_point <= high:
        problem = f"zero_point is {value_text(zero_point)}"
        raise ArgumentError(name, problem, f"{low} to {high}", "quantise the model again")
    return stored


def _quantize(name: str, x: Tensor, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: Any) -> Any:
    stored = _checked(name, zero, low, high, dtype)
    q = quantized(name, x, scale, zero, axis, stored)
    return q if (low, high) == int_range(stored) else meta.clip(q, low, high)


def _dequantize(
    name: str, x: Tensor, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: Any, out_dtype: Any
) -> Any:
    _checked(name, zero, low, high, dtype)
    return dequantized(name, x, scale, zero, axis, "float32" if out_dtype is None else canonical(out_dtype, name))


def quantize_per_tensor(x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    return _quantize("quantize_per_tensor", x, scale, zero_point, 0, quant_min, quant_max, dtype)


def quantize_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    return _quantize("quantize_per_channel", x, scales, zero_points, axis, quant_min, quant_max, dtype)


def dequantize_per_tensor(
    x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any, out_dtype: Any = None
) -> Any:
    return _dequantize("dequantize_per_tensor", x, scale, zero_point, 0, quant_min, quant_max, dtype, out_dtype)


def dequantize_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, quant_min: int, quant_max: int, dtype: Any,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    name = "dequantize_per_channel"
    return _dequantize(name, x, scales, zero_points, axis, quant_min, quant_max, dtype, out_dtype)


QUANTIZED: Final[Mapping[str, Callable[..., Any]]] = {
    each.__name__: each
    for each in (quantize_per_tensor, quantize_per_channel, dequantize_per_tensor, dequantize_per_channel)
}
"""Functions by the operators' base names."""
