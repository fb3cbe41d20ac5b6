"""The common parts of operators of linear algebra: rules on the types of matrices, and errors about their values."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from meta import dtype as dtypes
from meta.dim import same_dim
from meta.errors import LinAlgError, MetaError
from meta.ir.type import TensorType
from meta.op import registry, rules

DTYPES = ("float32", "float64")
"""The dtypes that LAPACK and cuSOLVER compute in."""

NO_COMPUTE = "factorizations are LAPACK's and cuSOLVER's"
"""Why operators have no TVM compute."""

declare = partial(registry.declare, amp="never", no_compute=NO_COMPUTE)
"""Declare an operator without a TVM compute that autocast runs in float32."""


def require_matrix(name: str, t: TensorType) -> None:
    """At least two axes, and a dtype of LAPACK."""
    rules.require(t.ndim >= 2, f"'{name}' has shape {rules.show(t.shape)}", "at least 2 axes, (..., m, n)")
    remedy = f'cast it: {name}.cast("float32")'
    is_computed = t.dtype in DTYPES or dtypes.is_complex(t.dtype)  # few operators take complex matrices
    rules.require(is_computed, f"'{name}' has dtype {t.dtype}", ", ".join(DTYPES), remedy)


def require_square(name: str, t: TensorType) -> None:
    require_matrix(name, t)
    square = same_dim(*t.shape[-2:])
    rules.require(square, f"'{name}' has shape {rules.show(t.shape)}", "square matrices (..., n, n)")


def info_type(x: TensorType) -> TensorType:
    """The type of `info`, an int32 for each matrix: 0, or the position, from 1, at which its factorization failed."""
    return x.with_shape(x.shape[:-2]).with_dtype("int32")


@contextmanager
def converging(name: str) -> Generator[None]:
    """Raise LinAlgError in the name of an operator where a library reports that an algorithm does not converge, or that
    it takes no infinities and NaN."""
    try:
        yield
    except MetaError:
        raise
    except Exception as error:
        if not type(error).__name__.endswith("LinAlgError") and "infs or NaNs" not in str(error):
            raise
        problem = "the algorithm does not converge for a matrix"
        remedy = "replace infinities and NaN, for which it does not: meta.nan_to_num(x)"
        raise LinAlgError(name, problem, "matrices of finite numbers", remedy) from error


def require_success(name: str, info: Any, failure: Callable[[int], str], expected: str, remedy: str) -> None:
    """Raise LinAlgError about the first matrix whose `info`, a NumPy array of the shape of the batch, is not 0.

    failure: the problem with a matrix, from its info."""
    if not info.any():
        return
    first = info.reshape(-1).nonzero()[0][0]
    place: list[int] = []
    rest = int(first)
    for size in reversed(info.shape):
        place.insert(0, rest % size)
        rest //= size
    which = f"matrix {place[0] if len(place) == 1 else tuple(place)} of the batch" if place else "the matrix"
    raise LinAlgError(name, f"{which} is {failure(int(info.reshape(-1)[first]))}", expected, remedy)


def require_positive_definite(info: object) -> None:
    """Raise LinAlgError in the name of `cholesky`."""
    require_success(
        "cholesky",
        info,
        lambda order: f"not positive-definite: its leading minor of order {order} is not positive",
        "symmetric positive-definite matrices",
        "add a multiple of the identity, or read `info` of cholesky_ex",
    )


def require_invertible(name: str, info: object) -> None:
    """Raise LinAlgError in the name of a function that divides by pivots."""
    require_success(
        name,
        info,
        lambda position: f"singular: pivot {position} of its LU factorization is 0",
        "invertible matrices",
        f"use meta.linalg.pinv or lstsq, or read `info` of {name}_ex",
    )
