"""Declarations of operators on complex numbers and their parts."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.dim import same_dim
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import standard_unary
from meta.op.registry import declare
from meta.schema import complex as complex_schemas
from meta.schema import unary

NO_COMPUTE = "TVM has no complex dtype"

standard_unary(
    "angle",
    "The angle of a complex number in radians, in [-pi, pi]; of a real one 0, pi below zero and NaN for NaN.",
    result="float part",
    family="complex",
    complex="as_is",
)
standard_unary(
    "conj",
    "The complex conjugate: the imaginary part has the other sign. Real numbers stay as they are.",
    result="same",
    family="complex",
    amp="keep",
    complex="as_is",
    aliases=("conjugate",),
)
standard_unary(
    "real",
    "The real part of each element.",
    result="part",
    family="complex",
    amp="keep",
    complex="as_is",
    method=False,
)
standard_unary(
    "sgn",
    "x / abs(x), 0 at 0; of real numbers the sign, 0 for NaN.",
    result="same",
    accepts="number",
    family="complex",
    complex="as_is",
)


@declare("imag", schema=unary.unary, pattern="elemwise", amp="keep", no_compute=NO_COMPUTE, complex="as_is")
def imag(x: TensorType) -> TensorType:
    """The imaginary part of each element of a complex tensor."""
    rules.require_complex("x", x)
    return x.with_dtype(dtypes.real_dtype(x.dtype))


@declare("view_as_real", schema=unary.unary, amp="keep", view=True, complex="as_is")
def view_as_real(x: TensorType) -> TensorType:
    """The real and imaginary parts along a new last axis of size 2, in the memory of x."""
    rules.require_complex("x", x)
    return x.with_shape((*x.shape, 2)).with_dtype(dtypes.real_dtype(x.dtype))


@declare("view_as_complex", schema=unary.unary, amp="keep", view=True, complex="as_is")
def view_as_complex(x: TensorType) -> TensorType:
    """Complex numbers from real and imaginary parts along the last axis, in the memory of x."""
    _require_parts("x", x)
    rules.require(
        x.ndim > 0 and same_dim(x.shape[-1], 2),
        f"'x' has shape {rules.show(x.shape)}",
        "2 elements along the last axis: real and imaginary part",
    )
    return x.with_shape(x.shape[:-1]).with_dtype(dtypes.complex_dtype(x.dtype))


def _require_parts(name: str, t: TensorType) -> None:
    rules.require(
        t.dtype in ("float32", "float64"),
        f"'{name}' has dtype {t.dtype}",
        "float32, float64",
        f'cast it: {name}.cast("float32")',
    )


def _from_parts(**parts: TensorType) -> TensorType:
    first, second = parts.values()
    for name, t in parts.items():
        _require_parts(name, t)
    rules.require_same_dtype(**parts)
    return rules.broadcast_type(first, second, dtype=dtypes.complex_dtype(first.dtype))


@declare(
    "complex", schema=complex_schemas.parts, pattern="broadcast", amp="never", no_compute=NO_COMPUTE, complex="as_is"
)
def complex_(re: TensorType, im: TensorType) -> TensorType:
    """re + im * 1j: float32 gives complex64, float64 complex128."""
    return _from_parts(re=re, im=im)


@declare(
    "polar", schema=complex_schemas.polar, pattern="broadcast", amp="never", no_compute=NO_COMPUTE, complex="as_is"
)
def polar(radius: TensorType, phase: TensorType) -> TensorType:
    """radius * exp(phase * 1j): float32 gives complex64, float64 complex128."""
    return _from_parts(radius=radius, phase=phase)
