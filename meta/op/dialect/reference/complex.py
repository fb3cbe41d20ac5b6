"""Operators on complex numbers and their parts, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import floating
from meta.op.dialect.reference import elementwise

Array = Any


def from_parts(re: Array, im: Array) -> Array:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
    out.real, out.imag = re, im
    return out


def angle(x: Array) -> Array:
    return np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(floating(x)), x, np.where(x < 0, np.pi, 0))


def sgn(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.where(x > 0, 1, np.where(x < 0, -1, 0))
    larger = np.maximum(np.abs(x.real), np.abs(x.imag))  # the quotient of denormal numbers is infinite
    larger = np.where(larger == 0, 1, larger)
    re, im = x.real / larger, x.imag / larger
    size = np.hypot(re, im)
    size = np.where(size == 0, 1, size)
    return from_parts(re / size, im / size)


elementwise({
    "angle": angle,
    "complex": from_parts,
    "conj": np.conj,
    "imag": np.imag,
    "polar": lambda radius, phase: from_parts(radius * np.cos(phase), radius * np.sin(phase)),
    "real": np.real,
    "sgn": sgn,
})  # fmt: skip
