"""Products of tensors. Operands of different dtypes are promoted."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import meta
from meta.array_api.data_types import result_type
from meta.errors import ArgumentError


def promoted(*xs: Any) -> list[Any]:
    """Tensors in their common dtype."""
    dtype = result_type(*xs)
    return [meta.cast(x, dtype) if x.dtype != dtype else x for x in xs]


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product over the last two axes; others broadcast."""
    return meta.matmul(*promoted(x1, x2))


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes swapped."""
    return meta.swap_axis(x, -2, -1)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of products along an axis; others broadcast."""
    x1, x2 = promoted(x1, x2)
    return meta.cast(meta.sum(meta.multiply(x1, x2), axis), x1.dtype)


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """The sum of products over the last axes of x1 and the first of x2 (an int: how many), or over the given axes.

    Raises ArgumentError for axes that do not pair."""
    x1, x2 = promoted(x1, x2)
    pairs = (range(x1.ndim - axes, x1.ndim), range(axes)) if isinstance(axes, int) else axes
    left, right = ([axis % max(x.ndim, 1) for axis in of_x] for x, of_x in zip((x1, x2), pairs, strict=True))
    if len(left) != len(right) or [x1.shape[a] for a in left] != [x2.shape[b] for b in right]:
        raise ArgumentError(
            "tensordot",
            f"axes {tuple(left)} of shape {x1.shape} and {tuple(right)} of shape {x2.shape}",
            "as many axes of equal sizes of both",
        )
    labels = iter(ascii_letters)
    first = [next(labels) for _ in range(x1.ndim)]
    second = [next(labels) for _ in range(x2.ndim)]
    for a, b in zip(left, right, strict=True):
        second[b] = first[a]
    kept = [c for c in first if c not in second] + [c for c in second if c not in first]
    return meta.einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", x1, x2)
