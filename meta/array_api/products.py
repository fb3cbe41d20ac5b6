"""Products of tensors. Operands of different dtypes are promoted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.array_api.data_types import result_type


def promoted(*xs: Tensor) -> list[Any]:
    """Tensors in their common dtype."""
    dtype = result_type(*xs)
    return [meta.cast(x, dtype) if x.dtype != dtype else x for x in xs]


def matmul(x1: Tensor, x2: Tensor, /) -> Any:
    """The matrix product over the last two axes; others broadcast."""
    return meta.matmul(*promoted(x1, x2))


def matrix_transpose(x: Tensor, /) -> Any:
    """The last two axes swapped."""
    return meta.swap_axis(x, -2, -1)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Any:
    """The sum of products along an axis, of the conjugate of x1 if it is complex; others broadcast."""
    x1, x2 = promoted(x1, x2)
    first = meta.conj(x1) if dtypes.is_complex(x1.dtype) else x1
    return meta.cast(meta.sum(meta.multiply(first, x2), axis), x1.dtype)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """The sum of products over the last axes of x1 and the first of x2 (an int: how many), or over the given axes.

    Raises TypeInferenceError for axes that do not pair."""
    x1, x2 = promoted(x1, x2)
    return meta.tensordot(x1, x2, axes)
