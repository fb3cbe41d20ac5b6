"""Inverses and solutions of linear systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dim import product, same_dim
from meta.dtype import is_complex, real_dtype, significand_bits
from meta.functional._axes import transposed
from meta.functional._checks import as_dtype, require, require_matrix, require_square
from meta.op.grad.support import adjoint as conjugate_transposed
from meta.op.rules import broadcast_shapes, same_shape, show


def inv(x: T) -> T:
    """The inverses of matrices (..., n, n).

    Raises LinAlgError that names the first singular matrix of the batch, TypeInferenceError for other shapes and
    dtypes. `inv_ex` raises no LinAlgError."""
    return meta.inv_ex(x, check_errors=True)[0]


def solve(a: T, b: T, left: bool = True) -> T:
    """The solution x of a x = b, or of x a = b without `left`.

    a: (..., n, n).  b: (..., n, k), or (..., k, n) without `left`; batches broadcast. b of the shape (..., n) of a
    without its last axis, or (n,), has one vector a matrix. Raises LinAlgError that names the first singular matrix,
    TypeInferenceError for other shapes and dtypes. `solve_ex` raises no LinAlgError."""
    return solve_ex(a, b, left, check_errors=True)[0]


def solve_ex(a: T, b: T, left: bool = True, check_errors: bool = False) -> tuple[T, T]:
    """The result of `solve`, and `info`, int32 (...,): 0, or the position, from 1, of the pivot that is 0 in a."""
    require_square("solve", a, "a")
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and same_shape(a.shape[:-1], b.shape))
    require("solve", left or not is_vector, f"'b' has shape {show(b.shape)}, vectors", "matrices if left is False")
    if is_vector:
        solution, info = meta.solve_ex(a, meta.expand_dims(b, -1), check_errors)
        return meta.squeeze(solution, -1), info
    if left:
        return meta.solve_ex(a, b, check_errors)
    require_matrix("solve", b, "b")
    solution, info = meta.solve_ex(transposed(a), transposed(b), check_errors)
    return transposed(solution), info


def solve_triangular(a: T, b: T, upper: bool, left: bool = True, unitriangular: bool = False) -> T:
    """The solution x of a x = b, or of x a = b without `left`, for triangular matrices a (..., n, n), by substitution.

    b: (..., n, k), or (..., k, n) without `left`; batches broadcast.  unitriangular: the diagonal of a counts as ones.
    A 0 on the diagonal gives infinities. Raises TypeInferenceError for other shapes and dtypes."""
    if left:
        return meta.solve_triangular(a, b, upper, unitriangular)
    require_matrix("solve_triangular", a, "a")
    require_matrix("solve_triangular", b, "b")
    return transposed(meta.solve_triangular(transposed(a), transposed(b), not upper, unitriangular))


def lu_solve(factors: T, pivots: T, b: T, left: bool = True, adjoint: bool = False) -> T:
    """The solution x of a x = b from the results of `lu_factor(a)`, of x a = b without `left`, and with a^H in place of
    a with `adjoint`. Batches broadcast.

    Raises TypeInferenceError for other shapes and dtypes."""
    require_square("lu_solve", factors, "factors")
    require_matrix("lu_solve", b, "b")
    fits = len(pivots.shape) == factors.ndim - 1 and same_shape(pivots.shape, factors.shape[:-1])
    require("lu_solve", fits, f"'pivots' has shape {show(pivots.shape)}", f"shape {show(factors.shape[:-1])}")
    require("lu_solve", pivots.dtype == "int32", f"'pivots' has dtype {pivots.dtype}", "int32")
    if not left:
        return conjugate_transposed(lu_solve(factors, pivots, conjugate_transposed(b), True, not adjoint))
    order = meta.pivots_to_permutation(pivots, factors.shape[-1])
    if not adjoint:
        rows = meta.solve_triangular(factors, _permuted(b, order), False, True)
        return meta.solve_triangular(factors, rows, True)
    turned = conjugate_transposed(factors)
    rows = meta.solve_triangular(turned, meta.solve_triangular(turned, b, False), True, True)
    return _permuted(rows, meta.argsort(order, -1))


def _permuted(b: T, order: T) -> T:
    """The rows of matrices (..., n, k) in an order (..., n); batches broadcast."""
    n, k = b.shape[-2:]
    require("lu_solve", same_dim(n, order.shape[-1]), f"'b' has shape {show(b.shape)}", f"{order.shape[-1]} rows")
    if order.ndim == 1:
        return meta.take(b, order, -2)
    batch = broadcast_shapes(order.shape[:-1], b.shape[:-2])
    rows = meta.broadcast_to(meta.expand_dims(order, -1), (*batch, n, k))
    return meta.gather(meta.broadcast_to(b, (*batch, n, k)), -2, rows)


def pinv(
    x: Tensor, atol: Tensor | float | None = None, rtol: Tensor | float | None = None, hermitian: bool = False
) -> Tensor:
    """The pseudo-inverses (E. Moore, R. Penrose) of matrices, (..., m, n) to (..., n, m).

    atol, rtol: singular values up to max(atol, rtol * the largest) count as zero: numbers, or tensors that broadcast to
    the batch. Without both, rtol is max(m, n) times the distance of 1 to the next number.  hermitian: x is Hermitian,
    and its lower triangle is read. Raises TypeInferenceError for other shapes and dtypes."""
    return meta.pinv(x, as_tensor(atol, x), as_tensor(rtol, x), hermitian)


def as_tensor(value: Tensor | float | None, like: Tensor) -> Any:
    """A tolerance as a tensor of the dtype of the parts of `like`; None for None."""
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return meta.full((), value, real_dtype(like.dtype), like.device)
    return as_dtype(value, real_dtype(like.dtype))


def lstsq(a: Tensor, b: Tensor, rcond: float | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The x of least norm that minimises |a x - b|, the squared residuals of its columns, (..., k), the rank of a,
    int64 (...,), and its singular values.

    a: (..., m, n).  b: (..., m, k); b of the shape of a without its last axis has one vector a matrix.  rcond: singular
    values up to this fraction of the largest count as zero; None: max(m, n) times the distance of 1 to the next number.
    The residuals are empty, (0,), unless m > n. Raises TypeInferenceError for other shapes and dtypes."""
    require_matrix("lstsq", a, "a")
    is_vector = b.ndim == a.ndim - 1 and same_shape(a.shape[:-1], b.shape)
    right = meta.expand_dims(b, -1) if is_vector else b
    require_matrix("lstsq", right, "b")
    m, n = a.shape[-2:]
    fits = same_dim(m, right.shape[-2])
    require("lstsq", fits, f"'a' has shape {show(a.shape)}, 'b' has {show(b.shape)}", f"{m} rows in b")
    x = meta.matmul(pinv(a, rtol=rcond), right)
    values = meta.svd(a, False)[1]
    fraction = epsilon(a) * max(m, n) if rcond is None else rcond
    least = meta.max(values, -1, True) * fraction if n and m else values
    rank = meta.sum(meta.greater(values, least), -1)
    residuals = meta.zeros((0,), real_dtype(a.dtype), a.device)
    if m > n:
        missed = meta.matmul(a, x) - right
        missed = meta.abs(missed) if is_complex(missed.dtype) else missed
        residuals = meta.sum(missed * missed, -2)
    return (meta.squeeze(x, -1) if is_vector else x), residuals, rank, values


def epsilon(x: Tensor) -> float:
    """The distance of 1 to the next number in the dtype of x or of its parts."""
    return 2.0 ** (1 - significand_bits(real_dtype(x.dtype)))


def tensorinv(x: T, ind: int = 2) -> T:
    """The tensor y with tensordot(y, x, ind) an identity: the inverse of x as a matrix of its first `ind` axes and the
    others, whose products of sizes are equal; y has those others first.

    Raises TypeInferenceError for other shapes, LinAlgError for a singular x."""
    require("tensorinv", ind > 0, f"ind is {ind}", "a positive int")
    rows, columns = x.shape[:ind], x.shape[ind:]
    fits = same_dim(product(rows), product(columns))
    require("tensorinv", fits, f"'x' has shape {show(x.shape)}", f"first {ind} sizes with the product of the others")
    return meta.reshape(inv(meta.reshape(x, (product(rows), product(columns)))), (*columns, *rows))


def tensorsolve(a: T, b: T, axes: Sequence[int] | None = None) -> T:
    """The tensor x with tensordot(a, x, x.ndim) = b: the solution with a as a matrix of its first b.ndim axes and the
    others.

    axes: axes of a that are moved to its end first. Raises TypeInferenceError for other shapes, LinAlgError for a
    singular a."""
    if axes is not None:
        moved = [axis % a.ndim for axis in axes]
        a = meta.transpose(a, (*(axis for axis in range(a.ndim) if axis not in moved), *moved))
    shape = a.shape[b.ndim :]
    size = product(shape)
    shapes = f"'a' has shape {show(a.shape)}, 'b' has {show(b.shape)}"
    fits = same_dim(product(a.shape[: b.ndim]), size) and same_dim(product(b.shape), size)
    require("tensorsolve", fits, shapes, "equal products of a's last sizes, of its first sizes, and of b's sizes")
    return meta.reshape(solve(meta.reshape(a, (size, size)), meta.reshape(b, (size,))), shape)


def matrix_power(x: Tensor, n: int) -> Any:
    """The product of n equal matrices (..., k, k): the identity for n = 0, of inverses for negative n.

    Raises LinAlgError for a negative n and a singular matrix, TypeInferenceError for other shapes."""
    require_square("matrix_power", x)
    if n == 0:
        return meta.broadcast_to(meta.eye(x.shape[-1], None, x.dtype, x.device), x.shape)
    power, left, result = (inv(x) if n < 0 else x), abs(n), None
    while left:
        if left & 1:
            result = power if result is None else meta.matmul(result, power)
        left >>= 1
        power = meta.matmul(power, power) if left else power
    return result


def logdet(x: T) -> T:
    """The logarithm of determinants, (..., n, n) to (...,); -inf for singular matrices, NaN for negative determinants;
    of complex ones the principal logarithm.

    Raises TypeInferenceError for other shapes and dtypes."""
    sign, logabsdet = meta.slogdet(x)
    if is_complex(sign.dtype):
        return meta.log(sign) + logabsdet
    return meta.where(meta.less(sign, 0), float("nan"), logabsdet)
