"""Helpers on axes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T
from meta.dim import Dim, same_dim
from meta.errors import MetaError
from meta.op import rules

_MOST_PARTS = 16
"""Results of one split, and operands of one concatenation, of a loop's elements."""


def along(vector: T, axis: int, ndim: int) -> T:
    """A vector so that it broadcasts along one axis of a tensor of `ndim` axes."""
    shape = [1] * ndim
    shape[axis] = -1
    return meta.reshape(vector, shape)


def equal_shapes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal; symbolic sizes are compared too."""
    return rules.same_shape(tuple(a), tuple(b))


def broadcast(name: str, *xs: T) -> tuple[T, ...]:
    """The tensors in their common shape. Raises TypeInferenceError in the name of a function if they have none."""
    try:
        shape = rules.broadcast_shapes(*(tuple(x.shape) for x in xs))
    except MetaError as error:
        error.attribute(name)
        raise
    return tuple(x if equal_shapes(x.shape, shape) else meta.broadcast_to(x, shape) for x in xs)


def unstacked(x: T) -> list[T]:
    """The elements of x along axis 0, split in steps: a kernel with as many results as elements compiles for minutes.
    The gradient of `split` is one concatenation; the gradient of indexing is a tensor of the size of x for each
    element."""
    return [meta.squeeze(part, 0) for part in _pieces(x)]


def stacked(parts: Sequence[Any]) -> Any:
    """The parts along a new axis 0, concatenated in steps, as `unstacked` splits."""
    rows: list[Any] = [meta.expand_dims(part, 0) for part in parts]
    while len(rows) > 1:
        groups = [rows[i : i + _MOST_PARTS] for i in range(0, len(rows), _MOST_PARTS)]
        rows = [group[0] if len(group) == 1 else meta.concatenate(group, 0) for group in groups]
    return rows[0]


def _pieces(x: T) -> list[T]:
    length = x.shape[0]
    if length <= _MOST_PARTS:
        return list(meta.split(x, length, 0)) if length > 1 else [x]
    size = max(_MOST_PARTS, -(-length // _MOST_PARTS))
    sections = meta.split(x, list(range(size, length, size)), 0)
    return [piece for section in sections for piece in _pieces(section)]


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
