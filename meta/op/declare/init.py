"""Declarations of operators that create tensors."""

from __future__ import annotations

import math
from typing import Any

from meta import dtype as dtypes
from meta.device import Device
from meta.dim import Dim, SymDim, maximum
from meta.ir.type import TensorType, tensor_type
from meta.op import rules
from meta.op.registry import declare
from meta.schema import init


def _created(shape: tuple[int, ...], dtype: str, device: Device) -> TensorType:
    return tensor_type(shape, dtype, device)


@declare("zeros", schema=init.init, pattern="injective", complex="analytic")
def zeros(shape: tuple[int, ...], dtype: str, device: Device) -> TensorType:
    """A tensor full of zeros."""
    return _created(shape, dtype, device)


@declare("ones", schema=init.init, pattern="injective", complex="analytic")
def ones(shape: tuple[int, ...], dtype: str, device: Device) -> TensorType:
    """A tensor full of ones."""
    return _created(shape, dtype, device)


@declare("full", schema=init.full, pattern="injective", complex="analytic")
def full(shape: tuple[int, ...], fill_value: Any, dtype: str, device: Device) -> TensorType:
    """A tensor full of one value, converted to the dtype."""
    rules.require_held(fill_value, dtype)
    return _created(shape, dtype, device)


def _like(x: TensorType, dtype: str | None) -> TensorType:
    return x if dtype is None else x.with_dtype(dtype)


@declare("zeros_like", schema=init.like, pattern="elemwise", complex="analytic")
def zeros_like(x: TensorType, dtype: str | None) -> TensorType:
    """A tensor full of zeros, of the shape of another."""
    return _like(x, dtype)


@declare("ones_like", schema=init.like, pattern="elemwise", complex="analytic")
def ones_like(x: TensorType, dtype: str | None) -> TensorType:
    """A tensor full of ones, of the shape of another."""
    return _like(x, dtype)


@declare("full_like", schema=init.full_like, pattern="elemwise", complex="analytic")
def full_like(x: TensorType, fill_value: Any, dtype: str | None) -> TensorType:
    """A tensor full of one value, converted to the dtype, of the shape of another."""
    rules.require_held(fill_value, dtype or x.dtype)
    return _like(x, dtype)


@declare("arange", schema=init.arange, pattern="injective", amp="never")
def arange(start: float, stop: float | None, step: float, dtype: str | None, device: Device) -> TensorType:
    """start, start + step, ... up to but excluding `stop`: ceil((stop - start) / step) values."""
    first, last = (0, start) if stop is None else (start, stop)
    rules.require(step != 0, "'step' is 0", "a step other than 0")
    if isinstance(first, SymDim) or isinstance(last, SymDim):
        return tensor_type((_symbolic_count(first, last, step),), dtype or "int64", device)
    rules.require(
        all(map(math.isfinite, (first, last, step))),
        f"start={first}, stop={last}, step={step}",
        "finite numbers",
    )
    if dtype is None:
        dtype = "float32" if any(isinstance(v, float) for v in (first, last, step)) else "int64"
    if all(isinstance(v, int) for v in (first, last, step)):
        size = max(int(-((first - last) // step)), 0)
    else:
        values = (last - first) / step
        rules.require(
            math.isfinite(values),
            f"start={first}, stop={last}, step={step}: {values} values",
            "a finite number of values",
            "use a larger step",
        )
        size = max(math.ceil(values), 0)
    for value in (first, first + (size - 1) * step) if size else ():
        _require_finite(value, "int64" if dtype == "bool" else dtype)
    return tensor_type((size,), dtype, device)


def _require_finite(value: float, dtype: str) -> None:
    """Raise TypeInferenceError for a number that `dtype` does not hold, not even as an infinity."""
    rules.require_held(value, dtype)
    finite = not dtypes.is_float(dtype) or abs(value) <= dtypes.largest(dtype)
    rules.require(
        finite,
        f"the number {value} does not fit into {dtype}",
        f"up to {dtypes.largest(dtype):.6g}" if dtypes.is_float(dtype) else "",
        "use a wider dtype",
    )


def _symbolic_count(first: Any, last: Any, step: Any) -> Dim:
    """The number of values of a range between sizes."""
    rules.require(
        all(isinstance(value, (int, SymDim)) for value in (first, last)) and isinstance(step, int),
        f"start={first}, stop={last}, step={step}",
        "ints beside a symbolic size",
        "multiply a range of ints: meta.arange(n) * 0.5",
    )
    distance = last - first if step > 0 else first - last
    count = -(-distance // abs(step))
    return count if first == 0 and step > 0 else maximum(count, 0)


@declare("linspace", schema=init.linspace, pattern="injective", amp="never")
def linspace(start: float, stop: float, num: int, dtype: str, device: Device) -> TensorType:
    """`num` evenly spaced values from `start` to `stop`, both included; only `start` if num is 1."""
    for value in (start, stop):
        if math.isfinite(value):
            _require_finite(value, "int64" if dtype == "bool" else dtype)
    return _created((num,), dtype, device)


@declare("eye", schema=init.eye, pattern="injective", complex="analytic")
def eye(n: int, m: int | None, dtype: str, device: Device) -> TensorType:
    """A matrix with ones on its diagonal and zeros elsewhere."""
    return _created((n, n if m is None else m), dtype, device)


@declare("one_hot", schema=init.one_hot, pattern="injective", method=True)
def one_hot(indices: TensorType, depth: int, dtype: str, axis: int) -> TensorType:
    """For each index a vector of zeros with a one at that position, along a new axis."""
    rules.require(
        dtypes.is_int(indices.dtype),
        f"'indices' has dtype {indices.dtype}",
        f"{', '.join(dtypes.INTS)}",
        'cast it: indices.cast("int64")',
    )
    axis = rules.axis_index(axis, indices.ndim + 1)
    return indices.with_shape((*indices.shape[:axis], depth, *indices.shape[axis:])).with_dtype(dtype)
