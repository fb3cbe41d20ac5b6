"""Diagonals of matrices, and triangles of positions. A diagonal is one slice of the flattened matrix."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.device import CPU, Device
from meta.dim import WHOLE, is_static, maximum, minimum, product
from meta.functional._checks import distinct_axes, require, require_same_device, require_same_dtype
from meta.op import rules

__all__ = [
    "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "tril_indices", "triu_indices",
]  # fmt: skip
AMP = {"diagonal_scatter": "infer"}


def diagonal(x: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
    """The elements of the planes of two axes whose column is their row plus `offset`, along a new last axis.

    Raises TypeInferenceError for fewer than two axes, or twice the same."""
    rows, planes = _flat_planes("diagonal", x, axis1, axis2)
    n, m = planes[-2:]
    lead = rows.ndim - 1
    if not is_static((n, m)):
        length = maximum(minimum(n, m - offset) if offset >= 0 else minimum(n + offset, m), 0)
        rank = meta.arange(0, length, 1, "int64", x.device)
        return meta.index_select(rows, lead, rank * (m + 1) + (offset if offset >= 0 else -offset * m))
    begin, end, step = _slice(n, m, offset)
    return meta.strided_slice(rows, (*(0,) * lead, begin), (*(WHOLE,) * lead, end), (*(1,) * lead, step))


def diagonal_scatter(x: T, src: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
    """x with `diagonal(x, offset, axis1, axis2)` replaced by `src`, which has its shape and the dtype of x."""
    rows, planes = _flat_planes("diagonal_scatter", x, axis1, axis2)
    n, m = planes[-2:]
    begin, end, step = _slice(n, m, offset)
    shape = (*planes[:-2], len(range(begin, end, step)))
    fits = rules.same_shape(tuple(src.shape), shape)
    require(
        "diagonal_scatter", fits, f"'src' has shape {rules.show(src.shape)}", f"{rules.show(shape)}, the diagonal's"
    )
    require_same_dtype("diagonal_scatter", x=x, src=src)
    require_same_device("diagonal_scatter", x, src)
    lead = rows.ndim - 1
    replaced = meta.strided_set(rows, src, (*(0,) * lead, begin), (*planes[:-2], end), (*(1,) * lead, step))
    return meta.moveaxis(meta.reshape(replaced, planes), (-2, -1), (axis1, axis2))


def diag_embed(x: T, offset: int = 0, axis1: int = -2, axis2: int = -1) -> T:
    """Square matrices, in the planes of two axes of the result, with the rows of x (its last axis) on diagonal `offset`
    and zeros elsewhere."""
    require("diag_embed", x.ndim > 0, "'x' is 0-d", "at least one axis")
    first, second = distinct_axes("diag_embed", axis1, axis2, x.ndim + 1)
    *lead, length = x.shape
    n = length + abs(offset)
    none, full, ones = (0,) * len(lead), tuple(lead), (1,) * len(lead)
    if not is_static((n,)):
        row = meta.arange(0, n, 1, "int64", x.device)
        values = meta.pad(x, (*none, *none, *((0, offset) if offset >= 0 else (-offset, 0))))
        on_diagonal = meta.equal(meta.expand_dims(row + offset, 1), row)
        matrices: Any = meta.where(on_diagonal, meta.expand_dims(values, -1), 0)
        return meta.moveaxis(matrices, (-2, -1), (first, second))
    begin, end, step = _slice(n, n, offset)
    flat = meta.strided_slice_dx(x, (*lead, n * n), (*none, begin), (*full, end), (*ones, step))
    return meta.moveaxis(meta.reshape(flat, (*lead, n, n)), (-2, -1), (first, second))


def diag(x: T, offset: int = 0) -> T:
    """The matrix with a vector on diagonal `offset`, or that diagonal of a matrix."""
    require("diag", x.ndim in (1, 2), f"'x' has shape {rules.show(x.shape)}", "rank 1 or 2")
    return diag_embed(x, offset) if x.ndim == 1 else diagonal(x, offset)


def diagflat(x: T, offset: int = 0) -> T:
    """The matrix with the elements of x, in row-major order, on diagonal `offset`."""
    return diag_embed(meta.reshape(x, (product(x.shape),)), offset)


def triu_indices(n: int, m: int, offset: int = 0, dtype: str = "int64", device: Device | str = CPU) -> Any:
    """The rows and columns, (2, count), of the elements of an n x m matrix on and above diagonal `offset`."""
    return _triangle("triu_indices", n, m, offset, dtype, device)


def tril_indices(n: int, m: int, offset: int = 0, dtype: str = "int64", device: Device | str = CPU) -> Any:
    """The rows and columns, (2, count), of the elements of an n x m matrix on and below diagonal `offset`."""
    return _triangle("tril_indices", n, m, offset, dtype, device)


def _triangle(name: str, n: int, m: int, offset: int, dtype: str, device: Device | str) -> Any:
    import numpy as np

    require(name, n >= 0 and m >= 0, f"{n} rows and {m} columns", "0 or more of each")
    positions = (np.triu_indices if name == "triu_indices" else np.tril_indices)(n, offset, m)
    return meta.asarray(np.stack(positions).astype(dtype), device=device)


def _flat_planes(name: str, x: Tensor, axis1: int, axis2: int) -> tuple[Any, tuple[Any, ...]]:
    """x with two axes moved to the end and flattened, and its shape before flattening."""
    first, second = distinct_axes(name, axis1, axis2, x.ndim)
    moved = meta.moveaxis(x, (first, second), (-2, -1))
    shape = tuple(moved.shape)
    return meta.reshape(moved, (*shape[:-2], shape[-2] * shape[-1])), shape


def _slice(n: int, m: int, offset: int) -> tuple[int, int, int]:
    """Begin, end and step of diagonal `offset` in a flattened n x m matrix."""
    length = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    begin = (offset if offset >= 0 else -offset * m) if length else 0
    return begin, begin + (length - 1) * (m + 1) + 1 if length else 0, m + 1
