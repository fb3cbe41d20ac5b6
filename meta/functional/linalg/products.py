"""Products of torch.linalg that `meta.functional.products` does not have."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import meta
from meta._generated.methods import T, Tensor
from meta.functional._checks import require, require_inexact, require_same_dtype
from meta.op.grad.support import conjugate
from meta.op.rules import show

AMP = {"multi_dot": "always", "vecdot": "infer"}


def vecdot(x1: T, x2: T, axis: int = -1) -> T:
    """Sums of products along an axis, of the conjugates of x1 with x2; the shapes broadcast.

    Raises TypeInferenceError for integers, different dtypes and shapes that do not broadcast."""
    require_same_dtype("vecdot", x1=x1, x2=x2)
    require_inexact("vecdot", x1, "x1")
    return meta.sum(conjugate(x1) * x2, axis)


def multi_dot(xs: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order of least work; the first and the last may be vectors.

    Raises TypeInferenceError for fewer tensors and for other ranks, ArgumentError for sizes that do not fit."""
    require("multi_dot", len(xs) >= 2, f"{len(xs)} tensors", "at least 2")
    for i, x in enumerate(xs):
        ranks = (1, 2) if i in (0, len(xs) - 1) else (2,)
        expected = f"{' or '.join(map(str, ranks))} axes"
        require("multi_dot", x.ndim in ranks, f"tensor {i} has shape {show(x.shape)}", expected)
    require_same_dtype("multi_dot", **{f"tensor {i}": x for i, x in enumerate(xs)})
    if len(xs) == 2:
        return meta.matmul(xs[0], xs[1])
    terms = [ascii_letters[i : i + 2] for i in range(len(xs))]
    if xs[0].ndim == 1:
        terms[0] = terms[0][1]
    if xs[-1].ndim == 1:
        terms[-1] = terms[-1][0]
    output_labels = terms[0][0] * (xs[0].ndim - 1) + terms[-1][-1] * (xs[-1].ndim - 1)
    return meta.einsum(f"{','.join(terms)}->{output_labels}", *xs)


def vander(x: T, n: int | None = None) -> T:
    """The powers x ** 0 to x ** (n - 1) of each element, (..., k) to (..., k, n); n is k if it is None. A 0-d tensor is
    a vector of one element. Integers give int64.

    Raises TypeInferenceError for bool and n below 1."""
    x = x if x.ndim else meta.reshape(x, (1,))
    require("vander", x.dtype != "bool", "'x' has dtype bool", "numbers", 'cast it: x.cast("int64")')
    count = x.shape[-1] if n is None else n
    require("vander", not isinstance(count, int) or count > 0, f"n is {count}", "at least 1")
    column = meta.expand_dims(x, -1)
    repeated = meta.broadcast_to(column, (*x.shape, count - 1))
    powers = meta.cumprod(repeated, -1)
    ones = meta.ones_like(column)
    return meta.concatenate([ones if ones.dtype == powers.dtype else meta.cast(ones, powers.dtype), powers], -1)


def diagonal(x: T, offset: int = 0, axis1: int = -2, axis2: int = -1) -> T:
    """The diagonals of matrices, (..., m, n) to (..., min(m, n)): `meta.diagonal` of the last two axes.

    Raises TypeInferenceError for fewer than two axes, or twice the same."""
    return meta.diagonal(x, offset, axis1, axis2)
