"""Comparisons of tensors within tolerances, and as wholes."""

from __future__ import annotations

from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dtype import Number
from meta.errors import ArgumentError

__all__ = ["allclose", "array_equal", "isclose", "isreal"]


def isclose(
    x1: Tensor | Number, x2: Tensor | Number, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|, elementwise, as torch.isclose and numpy.isclose do: a bool tensor of the
    broadcast shape.

    x1, x2: tensors, NumPy arrays or numbers, at least one a tensor. Infinities are close to equal infinities, NaN to
    NaN with `equal_nan`. Halves are compared in float32, complex numbers by the absolute value of their difference.
    Raises TypeInferenceError for shapes that do not broadcast, ArgumentError for a negative tolerance."""
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise ArgumentError("isclose", f"{name} is {tolerance}", "a number of at least 0")
    x1, x2 = _tensors("isclose", x1, x2)
    same = meta.equal(x1, x2)
    if equal_nan and dtypes.is_inexact(x1.dtype):
        same = meta.logical_or(same, meta.logical_and(meta.isnan(x1), meta.isnan(x2)))
    if dtypes.is_complex(x1.dtype):
        return _near(same, meta.abs(x1 - x2), meta.abs(x2), rtol, atol)
    exact = "uint8" if x1.dtype == "bool" else dtypes.accumulation_dtype(x1.dtype)
    x1, x2 = meta.cast(x1, exact), meta.cast(x2, exact)
    # Unsigned integers have no negative difference. A distance of infinities is NaN or infinite: not within tolerance.
    distance = meta.maximum(x1, x2) - meta.minimum(x1, x2)
    wide = exact if dtypes.is_float(exact) else "float64"
    return _near(same, meta.cast(distance, wide), meta.abs(meta.cast(x2, wide)), rtol, atol)


def _near(same: Any, distance: T, size: Any, rtol: float, atol: float) -> T:
    near = meta.logical_and(meta.isfinite(distance), meta.less_equal(distance, size * rtol + atol))
    return meta.logical_or(same, near)


def allclose(
    x1: Tensor | Number, x2: Tensor | Number, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close (see `isclose`), as torch.allclose and numpy.allclose do.

    Raises TraceError in a traced function, where values are unknown, and TypeInferenceError as `isclose` does."""
    return bool(meta.all(isclose(x1, x2, rtol, atol, equal_nan)))


def array_equal(x1: Tensor | Number, x2: Tensor | Number, equal_nan: bool = False) -> bool:
    """Whether two tensors have one shape and equal elements, as numpy.array_equal and torch.equal do.

    Dtypes may differ. equal_nan: whether NaN equals NaN. Raises TraceError in a traced function, whose values are
    unknown."""
    x1, x2 = _tensors("array_equal", x1, x2)
    if tuple(x1.shape) != tuple(x2.shape):
        return False
    same = meta.equal(x1, x2)
    if equal_nan and dtypes.is_inexact(x1.dtype):
        same = meta.logical_or(same, meta.logical_and(meta.isnan(x1), meta.isnan(x2)))
    return bool(meta.all(same))


def isreal(x: Tensor) -> Tensor:
    """Whether each element has no imaginary part other than 0, as a bool tensor: true for real dtypes, NaN too."""
    if not dtypes.is_complex(x.dtype):
        return meta.full(x.shape, True, "bool", x.device)
    return meta.equal(meta.imag(x), 0)


def _tensors(name: str, x1: Tensor | Number, x2: Tensor | Number) -> tuple[Tensor, Tensor]:
    """Both operands as tensors of their common dtype."""
    tensors = [x for x in (x1, x2) if isinstance(x, Tensor)]
    if not tensors:
        raise ArgumentError(
            name,
            f"the operands are {type(x1).__name__} and {type(x2).__name__}",
            "at least one tensor",
            "use meta.array(x)",
        )
    first = tensors[0]

    def tensor(x: object) -> Tensor:
        if isinstance(x, (bool, int, float, complex)):
            return meta.full((), x, dtypes.promote_scalar(first.dtype, x), first.device)
        return x if isinstance(x, Tensor) else meta.asarray(x, device=first.device)

    x1, x2 = tensor(x1), tensor(x2)
    common = dtypes.promote(x1.dtype, x2.dtype)
    return meta.cast(x1, common), meta.cast(x2, common)
