"""Norms of vectors and matrices, and what follows from singular values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.functional._checks import require, require_inexact, require_matrix, require_square
from meta.functional.linalg.solve import as_tensor, epsilon
from meta.functional.norm import p_norm
from meta.op.rules import axis_indices, reduced_shape, show

Order = float | Literal["fro", "nuc"]
Axes = int | Sequence[int] | None


def vector_norm(x: T, ord: float = 2, axis: Axes = None, keepdims: bool = False, dtype: Any = None) -> T:
    """sum(|x| ** ord) ** (1 / ord) along axes, None for all of them; the largest |x| for inf, the smallest for -inf,
    the number of elements other than 0 for 0.

    dtype: x is cast to it first.  Halves are added up in float32. Norms of zeros have the gradient 0. Raises
    TypeInferenceError for integers, and for no elements where there is no norm of none."""
    x = _cast(x, dtype)
    wide = _operand("vector_norm", x)
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    reduced = axis_indices((axes,) if isinstance(axes, int) else axes, x.ndim) if x.ndim else ()
    empty = any(x.shape[a] == 0 for a in reduced)
    problem = f"the norm of order {ord} of no elements: 'x' has shape {show(x.shape)}"
    require("vector_norm", not empty or (ord >= 0 and ord != math.inf), problem, "an order from 0 up, and not inf")
    return _cast(p_norm(wide, ord, axes, keepdims), dtypes.real_dtype(x.dtype))


def _operand(name: str, x: T) -> T:
    """x in the dtype that its norm is computed in. Raises TypeInferenceError for integers."""
    require_inexact(name, x)
    wide = dtypes.accumulation_dtype(x.dtype)
    return x if x.dtype == wide else meta.cast(x, wide)


def _cast(x: T, dtype: object) -> T:
    return x if dtype is None or x.dtype == dtypes.canonical(dtype) else meta.cast(x, dtype)


def matrix_norm(
    x: T, ord: Order = "fro", axis: Sequence[int] = (-2, -1), keepdims: bool = False, dtype: object = None
) -> T:
    """The norm of matrices along two axes: "fro" (Frobenius) and "nuc" (the sum of singular values), 2 and -2 (the
    largest and smallest singular value), 1 and -1 (the largest and smallest sum of |x| of a column), inf and -inf (of a
    row).

    dtype: x is cast to it first. Raises TypeInferenceError for another order, fewer axes, integers, and no elements
    where there is no norm of none."""
    orders = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    require("matrix_norm", ord in orders, f"ord is {ord!r}", ", ".join(map(repr, orders)))
    require_matrix("matrix_norm", x)
    rows, columns = _two_axes(axis, x)
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdims, dtype)
    x = _cast(x, dtype)
    wide = _operand("matrix_norm", x)
    if ord in ("nuc", 2, -2):
        values = meta.svd(meta.moveaxis(wide, (rows, columns), (-2, -1)), False)[1]
        norm = meta.sum(values, -1) if ord == "nuc" else _extreme(values, ord, -1, False)
        result = meta.reshape(norm, reduced_shape(x.shape, (rows, columns), True)) if keepdims else norm
        return _cast(result, dtypes.real_dtype(x.dtype))
    summed, compared = (rows, columns) if abs(float(ord)) == 1 else (columns, rows)
    sums = meta.sum(meta.abs(wide), summed, True)
    extreme = _extreme(sums, ord, compared, True)
    norm = extreme if keepdims else meta.squeeze(extreme, (rows, columns))
    return _cast(norm, dtypes.real_dtype(x.dtype))


def _extreme(x: T, ord: Order, axis: int, keepdims: bool) -> T:
    """The largest element for a positive order, 0 of none, or the smallest."""
    if float(ord) < 0:
        present = x.shape[axis] != 0
        require("matrix_norm", present, f"the norm of order {ord} of matrices without elements", "a positive order")
        return meta.min(x, axis, keepdims)
    return meta.sum(x, axis, keepdims) if x.shape[axis] == 0 else meta.max(x, axis, keepdims)


def _two_axes(axis: Sequence[int], x: Tensor) -> tuple[int, int]:
    axes = tuple(axis)
    inside = len(axes) == 2 and all(-x.ndim <= a < x.ndim for a in axes)
    require("matrix_norm", inside, f"axis is {axes} for rank {x.ndim}", f"two axes of {-x.ndim} to {x.ndim - 1}")
    rows, columns = (a % x.ndim for a in axes)
    require("matrix_norm", rows != columns, f"axis {axes} names an axis twice", "distinct axes")
    return rows, columns


def norm(x: T, ord: Order | None = None, axis: Axes = None, keepdims: bool = False, dtype: object = None) -> T:
    """The norm of a vector (along one axis) or a matrix (two axes), as numpy.linalg.norm has it: `vector_norm` or
    `matrix_norm`. Without an order it is the 2-norm of all elements along `axis`; with one and without axes x is a
    vector or a matrix.

    Raises TypeInferenceError for another number of axes, and as the two functions do."""
    if ord is None:
        return vector_norm(x, 2, axis, keepdims, dtype)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    require("norm", len(axes) in (1, 2), f"ord is {ord!r} for {len(axes)} axes", "1 or 2 axes", "name them in axis")
    if len(axes) == 2:
        return matrix_norm(x, ord, axes, keepdims, dtype)
    is_number = isinstance(ord, (int, float))
    require("norm", is_number, f"ord is {ord!r} for a vector", "a number")
    return vector_norm(x, float(ord), axes, keepdims, dtype)


def cond(x: Tensor, p: Order | None = None) -> Tensor:
    """The condition number norm(x, p) * norm(x^-1, p) of matrices, (..., m, n) to (...,); inf for singular ones.
    Without p, or with 2 or -2, the ratio of the largest and the smallest singular value, also of matrices that are not
    square.

    Raises TypeInferenceError for orders that `matrix_norm` does not have, and for other shapes and dtypes."""
    require_matrix("cond", x)
    if x.shape[-1] == 0 and x.shape[-2] == 0:
        return meta.zeros(x.shape[:-2], dtypes.real_dtype(x.dtype), x.device)
    if p in (None, 2, -2):
        values = meta.svd(x, False)[1]
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    require_square("cond", x)
    inverse, info = meta.inv_ex(x)
    order: Any = p
    product = matrix_norm(x, order) * matrix_norm(inverse, order)
    return meta.where(meta.not_equal(info, 0), math.inf, product)


def matrix_rank(x: Tensor, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """How many singular values of matrices are larger than max(atol, rtol * the largest), int64, (..., m, n) to (...,).

    atol, rtol: numbers, or tensors that broadcast to the batch. Without both, rtol is max(m, n) times the distance of 1
    to the next number.  hermitian: x is Hermitian, and its lower triangle is read. Raises TypeInferenceError for other
    shapes and dtypes."""
    values = meta.abs(meta.eigh(x)[0]) if hermitian else meta.svd(x, False)[1]
    if values.shape[-1] == 0:
        return meta.zeros(x.shape[:-2], "int64", x.device)
    largest = meta.max(values, -1)
    if rtol is None:
        rtol = 0.0 if atol is not None else max(x.shape[-2:]) * epsilon(x)
    least = largest * as_tensor(rtol, x)
    if atol is not None:
        least = meta.maximum(least, as_tensor(atol, x))
    return meta.sum(meta.greater(values, meta.expand_dims(least, -1)), -1)
