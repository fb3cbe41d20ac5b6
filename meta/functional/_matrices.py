"""Helpers on matrices: the last two axes of tensors, all axes before them are batches."""

from __future__ import annotations

import meta
from meta._generated.methods import T
from meta.dim import Dim, same_dim


def transposed(x: T) -> T:
    """The last two axes swapped."""
    return meta.swap_axis(x, -2, -1)


def main_diagonal(x: T) -> T:
    """The elements (..., i, i) as a last axis. Of symbolic sizes only equal ones, of square matrices, are known to be
    the smaller one."""
    m, n = x.shape[-2:]
    if isinstance(m, int) and isinstance(n, int):
        k = min(m, n)
        flat = meta.reshape(x[..., :k, :], (*x.shape[:-2], k * n))
        return flat[..., :: n + 1]
    on_diagonal = meta.sum(meta.where(identity(x, m, n), x, 0), -1)
    diagonal = on_diagonal if same_dim(m, n) or isinstance(m, int) else on_diagonal[..., :n]
    return diagonal if diagonal.dtype == x.dtype else meta.cast(diagonal, x.dtype)


def identity(like: T, m: Dim, n: Dim | None = None, dtype: str = "bool") -> T:
    """The matrix (m, n) with ones on its diagonal, on the device of a tensor."""
    return meta.eye(m, m if n is None else n, dtype, like.device)  # type: ignore[arg-type]
