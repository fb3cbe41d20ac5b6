"""Factories and conversions of dtypes."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.device import Device
from meta.device import device as parse_device
from meta.dim import SymDim
from meta.dtype import Number, canonical, is_complex, is_int
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import row, rows
from meta.frontend.torch.aten._values import in_dtype, is_tensor
from meta.functional.sequences import spaced

rows({
    **dict.fromkeys(("zeros", "empty"),
        lambda size, *, dtype=None, device=None: meta.zeros(tuple(size), dtype or "float32", device or "cpu")),
    "ones": lambda size, *, dtype=None, device=None: meta.ones(tuple(size), dtype or "float32", device or "cpu"),
    "full": lambda size, fill_value, *, dtype=None, device=None:
        meta.full(tuple(size), fill_value, dtype or _number_dtype(fill_value), device or "cpu"),
    **dict.fromkeys(("zeros_like", "empty_like"),
        lambda self, *, dtype=None, device=None: _placed(meta.zeros_like(self, dtype), device)),
    "ones_like": lambda self, *, dtype=None, device=None: _placed(meta.ones_like(self, dtype), device),
    "full_like": lambda self, fill_value, *, dtype=None, device=None:
        _placed(meta.full_like(self, fill_value, dtype), device),
    **dict.fromkeys(("new_zeros", "new_empty"),
        lambda self, size, *, dtype=None, device=None:
            meta.zeros(tuple(size), dtype or self.dtype, device or self.device)),
    "new_ones": lambda self, size, *, dtype=None, device=None:
        meta.ones(tuple(size), dtype or self.dtype, device or self.device),
    "new_full": lambda self, size, fill_value, *, dtype=None, device=None:
        meta.full(tuple(size), fill_value, dtype or self.dtype, device or self.device),
    "zero": "zeros_like",
    "triu_indices": lambda row, col, offset=0, *, dtype=None, device=None:
        meta.triu_indices(row, col, offset, dtype or "int64", device or "cpu"),
    "tril_indices": lambda row, col, offset=0, *, dtype=None, device=None:
        meta.tril_indices(row, col, offset, dtype or "int64", device or "cpu"),
    "eye": lambda n, m=None, *, dtype=None, device=None: meta.eye(n, m, dtype or "float32", device or "cpu"),
    "type_as": lambda self, other: _placed(in_dtype(self, other.dtype), other.device),
    "item": lambda self: self.item(),
})  # fmt: skip


@row()
def scalar_tensor(s: Number, *, dtype: str | None = None, device: Device | str | None = None) -> Any:
    if dtype is not None and is_int(canonical(dtype)) and isinstance(s, int):
        return in_dtype(meta.full((), s, "int64", device or "cpu"), dtype)  # wraps around
    return meta.full((), s, dtype or "float32", device or "cpu")


@row()
def fill(self: Any, value: Any) -> Any:
    if is_tensor(value):
        return meta.broadcast_to(in_dtype(value, self.dtype), self.shape)
    return meta.full_like(self, value)


@row()
def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    first, last = (0, start) if end is None else (start, end)
    if not any(isinstance(x, SymDim) for x in (first, last, step)) and (last - first) * step < 0:
        raise ArgumentError("arange", f"from {first} to {last} by {step}", "a step towards the end")
    if dtype is not None and is_int(canonical(dtype)):
        return _integer_range(first, last, step, canonical(dtype), device or "cpu")
    return meta.arange(start, end, step, dtype, device or "cpu")


def _integer_range(first: Any, last: Any, step: Any, dtype: str, device: Device | str) -> Any:
    """ATen cuts off fractions, for int64 before it counts the elements. Numbers that the dtype does not hold wrap
    around."""
    if any(isinstance(x, SymDim) for x in (first, last, step)):
        return in_dtype(meta.arange(first, last, step, "int64", device), dtype)
    whole, distance = int(first), int(step)
    if distance == 0:
        raise ArgumentError("arange", f"step is {step} for {dtype}", "a step of 1 or more, or of -1 or less")
    if dtype == "int64":
        first, last, step = whole, int(last), distance
    count = max(math.ceil((last - first) / step), 0)
    return in_dtype(meta.arange(whole, whole + count * distance, distance, "int64", device), dtype)


@row()
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None) -> Any:
    """For an integer dtype ATen also cuts off the fractions of the ends."""
    if dtype is not None and is_int(canonical(dtype)):
        start, end = _cut_off(start), _cut_off(end)
    if is_tensor(start) or is_tensor(end) or _has_complex(start, end, dtype):
        return in_dtype(_spaced("linspace", start, end, steps, device), dtype or _default_dtype(start, end))
    return meta.linspace(start, end, steps, dtype or "float32", device or "cpu")


@row()
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None) -> Any:
    """For an integer dtype ATen also cuts off the fractions of the ends if there are several elements."""
    if steps != 1 and dtype is not None and is_int(canonical(dtype)):
        start, end = _cut_off(start), _cut_off(end)
    if _has_complex(start, end, dtype):
        exponents = _spaced("logspace", start, end, steps, device)
        return in_dtype(meta.power(base, exponents), dtype or _default_dtype(start, end))
    return meta.logspace(start, end, steps, base, dtype or "float32", device or "cpu")


def _cut_off(end: Any) -> Any:
    return meta.cast(end, "int64") if is_tensor(end) else int(end)


def _has_complex(start: Any, end: Any, dtype: Any) -> bool:
    return (dtype is not None and is_complex(canonical(dtype))) or any(map(_is_complex, (start, end)))


def _is_complex(value: Any) -> bool:
    return is_complex(value.dtype) if is_tensor(value) else isinstance(value, complex)


def _default_dtype(start: Any, end: Any) -> str:
    return "complex64" if _is_complex(start) or _is_complex(end) else "float32"


def _spaced(name: str, start: Any, end: Any, steps: int, device: Any) -> Any:
    """Real or complex numbers at equal distances, in float64 or complex128."""
    if not _is_complex(start) and not _is_complex(end):
        return spaced(name, start, end, steps, device or "cpu")
    parts = [(meta.real(v), meta.imag(v)) if _is_complex(v) and is_tensor(v) else (v, 0.0) if is_tensor(v)
             else (v.real, v.imag) for v in (start, end)]  # fmt: skip
    real, imaginary = (spaced(name, first, last, steps, device or "cpu") for first, last in zip(*parts, strict=True))
    return meta.complex(real, imaginary)


@row("to", "_to_copy")
def to(self: Any, dtype: Any = None, device: Any = None, copy: bool = False, other: Any = None) -> Any:
    """`dtype` may be a device, or a tensor whose dtype and device are meant, as in ATen's overloads."""
    if is_tensor(dtype):
        return _placed(in_dtype(self, dtype.dtype), dtype.device)
    return _placed(in_dtype(self, dtype), device)


def _placed(x: Any, device: Any) -> Any:
    return x if device is None or parse_device(device) is x.device else x.to(device=device)


def _number_dtype(value: Any) -> str:
    return canonical(type(value)) if isinstance(value, (bool, int, float)) else value.dtype
