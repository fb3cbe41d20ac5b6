"""Declarations of Fourier transforms. meta.fft has the functions of torch and NumPy, which are made of these."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.dim import Dim, same_dim
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare.complex import NO_COMPUTE
from meta.op.registry import declare
from meta.schema import fft


def _axes(x: TensorType, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes counted from the front, in the order given. Each needs points."""
    rules.require(len(axes) > 0, "no axes", "at least one axis to transform")
    rules.axis_indices(axes, x.ndim)
    out = tuple(rules.axis_index(axis, x.ndim) for axis in axes)
    for axis in out:
        rules.require(x.ndim > 0, "'x' is 0-d", "at least one axis")
        rules.require(
            x.shape[axis] != 0, f"axis {axis} of shape {rules.show(x.shape)} has no points", "at least one point"
        )
    return out


@declare("fft_c2c", schema=fft.c2c, amp="never", no_compute=NO_COMPUTE, complex="as_is")
def fft_c2c(x: TensorType, axes: tuple[int, ...], scale: str, forward: bool) -> TensorType:
    """The discrete Fourier transform of complex numbers: y[k] = sum of x[n] exp(-2 pi i k n / N), backward with +."""
    rules.require_complex("x", x)
    _axes(x, axes)
    return x


@declare("fft_r2c", schema=fft.r2c, amp="never", no_compute=NO_COMPUTE, complex="as_is")
def fft_r2c(x: TensorType, axes: tuple[int, ...], scale: str, onesided: bool) -> TensorType:
    """The forward discrete Fourier transform of real numbers: y[k] = sum of x[n] exp(-2 pi i k n / N)."""
    rules.require(
        x.dtype in ("float32", "float64"),
        f"'x' has dtype {x.dtype}",
        "float32, float64",
        'cast it: x.cast("float32")',
    )
    last = _axes(x, axes)[-1]
    out = x.with_dtype(dtypes.complex_dtype(x.dtype))
    return out.with_size(last, x.shape[last] // 2 + 1) if onesided else out


@declare("fft_c2r", schema=fft.c2r, amp="never", no_compute=NO_COMPUTE, complex="as_is")
def fft_c2r(x: TensorType, axes: tuple[int, ...], last_size: Dim, scale: str) -> TensorType:
    """The backward discrete Fourier transform of a Hermitian spectrum, whose result is real. Imaginary parts that such
    a spectrum does not have are ignored."""
    rules.require_complex("x", x)
    last = _axes(x, axes)[-1]
    if isinstance(last_size, int):
        rules.require(last_size >= 1, f"last_size is {last_size}", "at least one point")
        rules.require(
            same_dim(last_size // 2 + 1, x.shape[last]),
            f"last_size is {last_size} and axis {last} has size {x.shape[last]}",
            f"{last_size // 2 + 1} frequencies",
        )
    return x.with_dtype(dtypes.real_dtype(x.dtype)).with_size(last, last_size)
