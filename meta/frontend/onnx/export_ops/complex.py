"""Operators on complex numbers, whose parts are along the last axis of a tensor, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

from meta import dtype as dtypes
from meta.dim import is_static
from meta.frontend.onnx.export_ops._table import OnnxSite, complex_row, complex_rows
from meta.ir.type import TensorType

_PARTS = 2


def _part(call: OnnxSite, x: str, index: int) -> str:
    return call.node("Gather", x, call.number(index, "int64"), axis=-1)


def _joined(call: OnnxSite, real: str, imaginary: str) -> str:
    """Parts of one shape as a complex value."""
    last = call.integers([-1])
    return call.node("Concat", call.node("Unsqueeze", real, last), call.node("Unsqueeze", imaginary, last), axis=-1)


def _parts(call: OnnxSite, position: int, value: Any) -> tuple[str, str | None]:
    """The real and the imaginary part of an argument that is a tensor or a number, in the result's precision; None for
    a real one."""
    dtype, kind = dtypes.real_dtype(call.dtype), call.args[position]
    if not isinstance(kind, TensorType):
        number = complex(value)
        return call.number(number.real, dtype), call.number(number.imag, dtype) if number.imag else None
    if not dtypes.is_complex(kind.dtype):
        return call.cast(value, kind.dtype, dtype), None
    held = dtypes.real_dtype(kind.dtype)
    return call.cast(_part(call, value, 0), held, dtype), call.cast(_part(call, value, 1), held, dtype)


def _broadcast(call: OnnxSite, real: str, imaginary: str) -> str:
    """Parts that broadcast to the shape of the result as a complex value."""
    shape = call.integers(call.result.shape)
    return _joined(call, call.node("Expand", real, shape), call.node("Expand", imaginary, shape))


def _zero(call: OnnxSite) -> str:
    return call.number(0.0, dtypes.real_dtype(call.dtype))


# --- parts -----------------------------------------------------------------------------------------------------------


complex_rows({
    "abs": lambda call, x: call.node("ReduceL2", x, call.integers([-1]), keepdims=0),
    "complex": lambda call, re, im: _broadcast(call, re, im),
    "conj": lambda call, x: call.node("Mul", x, call.number([1.0, -1.0], dtypes.real_dtype(call.dtype))),
    "imag": lambda call, x: _part(call, x, 1),
    "real": lambda call, x: _part(call, x, 0),
})  # fmt: skip
complex_row("view_as_real", "view_as_complex", "copy", "stop_gradient")(lambda call, x, *_: call.node("Identity", x))


@complex_row("polar")
def polar(call: OnnxSite, radius: str, phase: str) -> str:
    return _broadcast(call, *(call.node("Mul", radius, call.node(kind, phase)) for kind in ("Cos", "Sin")))


@complex_row("cast")
def cast(call: OnnxSite, x: str, dtype: str) -> str | None:
    if not dtypes.is_complex(dtype):
        return None
    source = call.types[0].dtype
    if dtypes.is_complex(source):
        return call.cast(x, dtypes.real_dtype(source), dtypes.real_dtype(dtype))
    return _broadcast(call, call.cast(x, source, dtypes.real_dtype(dtype)), _zero(call))


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _sum(kind: str) -> Any:
    def convert(call: OnnxSite, x1: Any, x2: Any) -> str:
        (a, b), (c, d) = _parts(call, 0, x1), _parts(call, 1, x2)
        zero = _zero(call)
        return _broadcast(call, call.node(kind, a, c), call.node(kind, b or zero, d or zero))

    return convert


complex_row("add")(_sum("Add"))
complex_row("subtract")(_sum("Sub"))


@complex_row("multiply")
def multiply(call: OnnxSite, x1: Any, x2: Any) -> str:
    (a, b), (c, d) = _parts(call, 0, x1), _parts(call, 1, x2)
    if b is None or d is None:
        imaginary = call.node("Mul", a, d) if d is not None else call.node("Mul", b or _zero(call), c)
        return _broadcast(call, call.node("Mul", a, c), imaginary)
    real_part = call.node("Sub", call.node("Mul", a, c), call.node("Mul", b, d))
    return _broadcast(call, real_part, call.node("Add", call.node("Mul", a, d), call.node("Mul", b, c)))


complex_row("negative")(lambda call, x: call.node("Neg", x))


# --- shapes ----------------------------------------------------------------------------------------------------------


@complex_row("reshape", "reshape_like", "expand_dims", "squeeze")
def reshape(call: OnnxSite, x: str, *_: Any) -> str:
    return call.node("Reshape", x, call.integers((*call.result.shape, _PARTS)), allowzero=1)


@complex_row("broadcast_to")
def broadcast_to(call: OnnxSite, x: str, *_: Any) -> str:
    missing = call.result.ndim - call.types[0].ndim
    wide = call.node("Unsqueeze", x, call.integers(range(missing))) if missing else x
    return call.node("Expand", wide, call.integers((*call.result.shape, _PARTS)))


@complex_row("transpose")
def transpose(call: OnnxSite, x: str, axes: tuple[int, ...] | None) -> str:
    ndim = call.result.ndim
    order = [a % ndim for a in axes] if axes else list(range(ndim))[::-1]
    return call.node("Transpose", x, perm=[*order, ndim])


# --- Fourier transforms ----------------------------------------------------------------------------------------------


def _dft(call: OnnxSite, x: str, axis: int, *, inverse: bool = False, onesided: bool = False) -> str:
    """The transform along one axis, counted from the front. Inverse ones are divided by the number of points."""
    options = {"inverse": int(inverse), "onesided": int(onesided)}
    if call.opset >= 20:
        return call.node("DFT", x, "", call.number(axis, "int64"), **options)
    return call.node("DFT", x, axis=axis, **options)


def _scaled(call: OnnxSite, x: str, points: int, scale: str, *, divided: bool) -> str:
    """A transform over a number of points, divided as `scale` says. divided: whether it is by the number already."""
    factor = {"none": 1.0, "root": 1 / sqrt(points), "size": 1 / points}[scale] * (points if divided else 1)
    return x if factor == 1 else call.node("Mul", x, call.number(factor, dtypes.real_dtype(call.dtype)))


def _axes(call: OnnxSite, axes: Sequence[int]) -> list[int]:
    return [axis % call.types[0].ndim for axis in axes]


def _points(kind: TensorType, axes: Sequence[int]) -> int | None:
    """The number of points of a transform; None if it is symbolic."""
    sizes = [kind.shape[axis] for axis in axes]
    return prod(int(size) for size in sizes) if is_static(sizes) else None


@complex_row("fft_c2c")
def fft_c2c(call: OnnxSite, x: str, axes: tuple[int, ...], scale: str, forward: bool) -> str | None:
    places = _axes(call, axes)
    points = _points(call.types[0], places)
    if points is None:
        return None
    for axis in places:
        x = _dft(call, x, axis, inverse=not forward)
    return _scaled(call, x, points, scale, divided=not forward)


@complex_row("fft_r2c")
def fft_r2c(call: OnnxSite, x: str, axes: tuple[int, ...], scale: str, onesided: bool) -> str | None:
    *others, last = _axes(call, axes)
    points = _points(call.types[0], (*others, last))
    if points is None:
        return None
    x = _dft(call, call.node("Unsqueeze", x, call.integers([-1])), last, onesided=onesided)
    for axis in others:
        x = _dft(call, x, axis)
    return _scaled(call, x, points, scale, divided=False)


@complex_row("fft_c2r")
def fft_c2r(call: OnnxSite, x: str, axes: tuple[int, ...], last_size: int, scale: str) -> str | None:
    """The last axis is made whole by the conjugates of its frequencies, which have the negative ones."""
    *others, last = _axes(call, axes)
    points = _points(call.result, (*others, last))
    if points is None:
        return None
    for axis in others:
        x = _dft(call, x, axis, inverse=True)
    positive = (last_size - 1) // 2  # frequencies that have a negative one
    if positive:
        bounds = [call.integers([n]) for n in (positive, 0, last, -1)]
        mirrored = call.node("Mul", call.node("Slice", x, *bounds), call.number([1.0, -1.0]))
        x = call.node("Concat", x, mirrored, axis=last)
    whole = _dft(call, x, last, inverse=True)
    return _scaled(call, _part(call, whole, 0), points, scale, divided=True)
