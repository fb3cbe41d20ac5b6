"""Lengths, distances and angles of vectors."""

from __future__ import annotations

from math import inf

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import product, same_dim
from meta.functional._axes import broadcast
from meta.functional._checks import (
    require,
    require_float,
    require_inexact,
    require_matrix,
    require_ranks,
    require_same_dtype,
)
from meta.functional.linalg.norms import vector_norm
from meta.functional.norm import root
from meta.op.rules import axis_index, broadcast_shapes, show

__all__ = ["cdist", "cosine_similarity", "dist", "normalize", "pairwise_distance", "pdist", "renorm"]
AMP = dict.fromkeys(("cdist", "cosine_similarity", "dist", "pairwise_distance", "pdist"), "never")

_MOST_DIFFERENCES = 1 << 24
"""Elements of all differences of vectors up to which distances are computed from them, which is exact for near vectors;
larger ones in the Euclidean norm from products of matrices."""


def normalize(x: T, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> T:
    """x divided by its p-norm along an axis, or by `eps` where the norm is less."""
    return x / meta.maximum(vector_norm(x, p, axis, True), eps)


def pairwise_distance(x1: T, x2: T, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> T:
    """The p-norm of x1 - x2 + eps along the last axis; shapes broadcast. Raises TypeInferenceError for others."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdims)


def cosine_similarity(x1: T, x2: T, axis: int = 1, eps: float = 1e-8) -> T:
    """sum(x1 * x2) / (max(|x1|, eps) * max(|x2|, eps)) along an axis: the cosine of the angle of two vectors. Shapes
    broadcast. Raises TypeInferenceError for others."""
    x1, x2 = broadcast("cosine_similarity", x1, x2)
    unit1, unit2 = normalize(x1, 2.0, axis, eps), normalize(x2, 2.0, axis, eps)
    return meta.sum(unit1 * unit2, axis)


def dist(x1: T, x2: T, p: float = 2) -> T:
    """The norm of order p of all elements of x1 - x2, whose shapes broadcast: a 0-d tensor. Dtypes promote.

    Raises TypeInferenceError for integers and shapes that do not broadcast."""
    return vector_norm(x1 - x2, p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2) -> Tensor:
    """The distances, in the norm of order p, of each row of x1 and each of x2: (..., m, k) and (..., n, k) to (..., m,
    n); batches broadcast. The gradient at a distance of 0 is 0.

    Raises TypeInferenceError for other ranks, different k, a negative p, integers and different dtypes."""
    require_matrix("cdist", x1, "x1")
    require_matrix("cdist", x2, "x2")
    require_float("cdist", x1, "x1")
    require_same_dtype("cdist", x1=x1, x2=x2)
    shapes = f"shapes are {show(x1.shape)} and {show(x2.shape)}"
    require("cdist", same_dim(x1.shape[-1], x2.shape[-1]), shapes, "equal last sizes")
    require("cdist", p >= 0, f"p is {p}", "a number from 0 up")
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    shape = (*batch, x1.shape[-2], x2.shape[-2])
    if x1.shape[-1] == 0:
        return meta.zeros(shape, x1.dtype, x1.device)
    count = product((*shape, x1.shape[-1]))
    if p == 2 and isinstance(count, int) and count > _MOST_DIFFERENCES:
        return _euclidean(x1, x2)
    return vector_norm(meta.expand_dims(x1, -2) - meta.expand_dims(x2, -3), p, -1)


def _euclidean(x1: T, x2: T) -> T:
    rows, columns = (meta.sum(x * x, -1, True) for x in (x1, x2))
    squares = rows + meta.swap_axis(columns, -2, -1) - 2.0 * meta.matmul(x1, x2, False, True)
    return root(meta.maximum(squares, 0.0), 2)


def pdist(x: Tensor, p: float = 2) -> Tensor:
    """The distances of each row of x (n, k) and each later row, in the norm of order p: (n * (n - 1) / 2,), the upper
    triangle of `cdist(x, x, p)` without the diagonal, row by row.

    Raises TypeInferenceError for other ranks, a negative p, integers and a symbolic n."""
    require_ranks("pdist", {"x": x}, {"x": 2})
    require_float("pdist", x)
    require("pdist", p >= 0, f"p is {p}", "a number from 0 up")
    n, k = x.shape
    require("pdist", isinstance(n, int), f"'x' has shape {show(x.shape)}", "a known number of rows")
    pairs = n * (n - 1) // 2
    if k == 0 or pairs == 0:
        return meta.zeros((pairs,), x.dtype, x.device)
    first, second = meta.unbind(meta.triu_indices(n, n, 1, device=x.device), 0)
    return vector_norm(meta.take(x, first, 0) - meta.take(x, second, 0), p, -1)


def renorm(x: T, p: float, axis: int, maxnorm: float) -> T:
    """x with the slices at each position of an axis scaled down to a norm of order p of `maxnorm`, where it is larger.

    Raises TypeInferenceError for fewer than two axes, an order that is not positive, a negative maxnorm and
    integers."""
    require("renorm", x.ndim >= 2, f"'x' has shape {show(x.shape)}", "at least 2 axes")
    require_inexact("renorm", x)
    require("renorm", p > 0, f"p is {p}", "a positive number")
    require("renorm", 0 <= maxnorm <= inf, f"maxnorm is {maxnorm}", "a number from 0 up")
    own_axis = axis_index(axis, x.ndim)
    others = tuple(a for a in range(x.ndim) if a != own_axis)
    wide = x if x.dtype == dtypes.accumulation_dtype(x.dtype) else meta.cast(x, dtypes.accumulation_dtype(x.dtype))
    norms = vector_norm(wide, p, others, True)
    factor = meta.where(meta.greater(norms, maxnorm), maxnorm / (norms + 1e-7), 1.0)
    return x * (factor if factor.dtype == x.dtype else meta.cast(factor, x.dtype))
