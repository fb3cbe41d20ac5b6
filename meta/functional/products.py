"""Products of vectors and matrices, also with a tensor added."""

from __future__ import annotations

from collections.abc import Sequence

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import Dim, product, same_dim
from meta.errors import ArgumentError, attributed
from meta.functional._axes import equal_shapes, main_diagonal
from meta.functional._checks import require, require_factors, require_ranks, require_same_dtype
from meta.op.rules import axis_index, require_contracted, show

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "cross", "dot", "inner", "kron", "mm", "mv",
    "outer", "tensordot",
]  # fmt: skip
AMP = dict.fromkeys(__all__, "always") | dict.fromkeys(("addr", "cross", "kron", "outer"), "infer")


def _multiplied(name: str, x1: T, x2: T, rank1: int, rank2: int, *, batch: bool = False) -> T:
    require_ranks(name, {"x1": x1, "x2": x2}, {"x1": rank1, "x2": rank2}, "write meta.matmul(x1, x2)")
    require_same_dtype(name, x1=x1, x2=x2)
    k1, k2 = x1.shape[-1], x2.shape[-2 if rank2 > 1 else 0]
    shapes = f"shapes {show(x1.shape)} and {show(x2.shape)}"
    others = x1.shape[-2] if rank1 > 1 else k1, x2.shape[-1] if rank2 > 1 else k2
    with attributed(name):
        require_contracted((x1.shape, x2.shape), (k1, k2), others, ("x1.mT", "x2.mT"))
    equal = not batch or same_dim(x1.shape[0], x2.shape[0])
    require(name, equal, f"{shapes} are batches of different sizes", "equal first sizes")
    return meta.matmul(x1, x2)


def mm(x1: T, x2: T) -> T:
    """The product of two matrices, (m, k) and (k, n) to (m, n); `matmul` without batches and broadcasting.

    Raises TypeInferenceError for other ranks, sizes that do not fit and different dtypes."""
    return _multiplied("mm", x1, x2, 2, 2)


def bmm(x1: T, x2: T) -> T:
    """The products of a batch of matrices, (b, m, k) and (b, k, n) to (b, m, n), without broadcasting.

    Raises TypeInferenceError for other ranks, sizes that do not fit and different dtypes."""
    return _multiplied("bmm", x1, x2, 3, 3, batch=True)


def mv(x1: T, x2: T) -> T:
    """The product of a matrix and a vector, (m, k) and (k,) to (m,).

    Raises TypeInferenceError for other ranks, sizes that do not fit and different dtypes."""
    return _multiplied("mv", x1, x2, 2, 1)


def dot(x1: T, x2: T) -> T:
    """The sum of the products of two vectors, (k,) and (k,) to a 0-d tensor.

    Raises TypeInferenceError for other ranks, different sizes and different dtypes."""
    return _multiplied("dot", x1, x2, 1, 1)


def inner(x1: T, x2: T) -> T:
    """Sums of products over the last axis of both, (..., k) and (*, k) to (..., *); of a 0-d tensor the product.

    Raises TypeInferenceError for last axes of different sizes and different dtypes."""
    require_same_dtype("inner", x1=x1, x2=x2)
    if x1.ndim == 0 or x2.ndim == 0:
        return meta.multiply(x1, x2)
    fits = same_dim(x1.shape[-1], x2.shape[-1])
    require("inner", fits, f"shapes are {show(x1.shape)} and {show(x2.shape)}", "equal last sizes")
    return tensordot(x1, x2, ((-1,), (-1,)))


def outer(x1: T, x2: T) -> T:
    """The products of each element of one vector and each of another, (m,) and (n,) to (m, n). Dtypes promote.

    Raises TypeInferenceError for other ranks."""
    require_ranks("outer", {"x1": x1, "x2": x2}, {"x1": 1, "x2": 1})
    return meta.multiply(meta.expand_dims(x1, 1), meta.expand_dims(x2, 0))


def tensordot(x1: T, x2: T, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> T:
    """Sums of products over the last axes of x1 and the first of x2 (an int: how many), or over pairs of axes, of equal
    sizes or 1; the result has the other axes of x1, then the other axes of x2.

    Raises TypeInferenceError for axes that do not pair, and for different dtypes."""
    require_same_dtype("tensordot", x1=x1, x2=x2)
    left, right = _axis_pairs(x1, x2, axes)
    x1, x2 = _summed_where_one(x1, left, x2, right), _summed_where_one(x2, right, x1, left)
    rows = [a for a in range(x1.ndim) if a not in left]
    columns = [a for a in range(x2.ndim) if a not in right]
    depth = product(x1.shape[a] for a in left)
    row_shape = tuple(x1.shape[a] for a in rows)
    last = tuple(x2.shape[a] for a in columns)
    first = meta.reshape(meta.transpose(x1, (*rows, *left)), (product(row_shape), depth))
    second = meta.reshape(meta.transpose(x2, (*right, *columns)), (depth, product(last)))
    return meta.reshape(meta.matmul(first, second), (*row_shape, *last))


def _summed_where_one(x: T, axes: list[int], other: T, paired: list[int]) -> T:
    """x summed along the axes whose partners have size 1, which broadcast."""
    ones = [a for a, b in zip(axes, paired, strict=True) if x.shape[a] != 1 and other.shape[b] == 1]
    total = meta.sum(x, tuple(ones), True) if ones else x
    return total if total.dtype == x.dtype else meta.cast(total, x.dtype)


def _axis_pairs(x1: Tensor, x2: Tensor, axes: int | tuple[Sequence[int], Sequence[int]]) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        most = min(x1.ndim, x2.ndim)
        require("tensordot", 0 <= axes <= most, f"axes is {axes}", f"0 to {most}, the axes that both have")
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left, right = ([_axis(a, x) for a in of_x] for x, of_x in zip((x1, x2), axes, strict=True))
    distinct = len(set(left)) == len(left) == len(right) == len(set(right))
    require(
        "tensordot",
        distinct and all(_pairs(x1.shape[a], x2.shape[b]) for a, b in zip(left, right, strict=True)),
        f"axes {tuple(left)} of shape {show(x1.shape)} and {tuple(right)} of shape {show(x2.shape)}",
        "as many axes of equal sizes of both",
    )
    return left, right


def _pairs(one: Dim, other: Dim) -> bool:
    return one == 1 or other == 1 or same_dim(one, other)


def _axis(axis: int, x: Tensor) -> int:
    problem = f"axis {axis} is out of range for rank {x.ndim}"
    require("tensordot", -x.ndim <= axis < x.ndim, problem, f"{-x.ndim} to {x.ndim - 1}")
    return axis % x.ndim


def kron(x1: Tensor, x2: Tensor) -> Tensor:
    """The Kronecker product: copies of x2 times each element of x1, with sizes that are products of both sizes. The
    tensor of fewer axes gets axes of size 1 in front. Dtypes promote."""
    rank = max(x1.ndim, x2.ndim)
    first: list[int] = [1] * (rank - x1.ndim) + list(x1.shape)
    second: list[int] = [1] * (rank - x2.ndim) + list(x2.shape)
    spread = meta.reshape(x1, [size for n in first for size in (n, 1)])
    across = meta.reshape(x2, [size for n in second for size in (1, n)])
    return meta.reshape(spread * across, [m * n for m, n in zip(first, second, strict=True)])


def trace(x: T) -> T:
    """The sum of the diagonal of a matrix (m, n), int64 for integers.

    Raises TypeInferenceError for other ranks and for bool."""
    require_ranks("trace", {"x": x}, {"x": 2})
    require("trace", x.dtype != "bool", "'x' has dtype bool", "numbers", 'cast it: x.cast("int64")')
    return meta.sum(main_diagonal(x))


def addmm(x: T, x1: T, x2: T, beta: float = 1, alpha: float = 1) -> T:
    """beta * x + alpha * (x1 @ x2) for matrices; x broadcasts to (m, n), and is not read if beta is 0.

    Raises TypeInferenceError for shapes that do not fit, different dtypes, and fractions with integers."""
    return _added("addmm", x, _multiplied("addmm", x1, x2, 2, 2), beta, alpha)


def addmv(x: T, x1: T, x2: T, beta: float = 1, alpha: float = 1) -> T:
    """beta * x + alpha * (x1 @ x2) for a matrix and a vector; see `addmm`."""
    return _added("addmv", x, _multiplied("addmv", x1, x2, 2, 1), beta, alpha)


def baddbmm(x: T, x1: T, x2: T, beta: float = 1, alpha: float = 1) -> T:
    """beta * x + alpha * (x1 @ x2) for batches of matrices; see `addmm`."""
    return _added("baddbmm", x, _multiplied("baddbmm", x1, x2, 3, 3, batch=True), beta, alpha)


def addbmm(x: T, x1: T, x2: T, beta: float = 1, alpha: float = 1) -> T:
    """beta * x + alpha * (the sum of the products of a batch of matrices); see `addmm`."""
    products = _multiplied("addbmm", x1, x2, 3, 3, batch=True)
    total = meta.sum(products, 0)
    return _added("addbmm", x, total if total.dtype == x1.dtype else meta.cast(total, x1.dtype), beta, alpha)


def addr(x: T, x1: T, x2: T, beta: float = 1, alpha: float = 1) -> T:
    """beta * x + alpha * outer(x1, x2) for vectors; see `addmm`. Dtypes promote, booleans are added by `or`."""
    added = outer(x1, x2)
    common = dtypes.promote(x.dtype, added.dtype)
    x, added = (t if t.dtype == common else meta.cast(t, common) for t in (x, added))
    if common == "bool":
        parts = [meta.broadcast_to(x, added.shape)] * bool(beta) + [added] * bool(alpha)
        return meta.logical_or(parts[0], parts[-1]) if parts else meta.zeros_like(added)
    return _added("addr", x, added, beta, alpha)


def _added(name: str, x: T, products: T, beta: float, alpha: float) -> T:
    require_same_dtype(name, x=x, x1=products)
    require_factors(name, x, beta=beta, alpha=alpha)
    _require_broadcasts(name, x, products)
    scaled = products if alpha == 1 else products * alpha
    if beta == 0:
        return scaled
    return (x if beta == 1 else x * beta) + scaled


def _require_broadcasts(name: str, x: Tensor, result: Tensor) -> None:
    """`x` broadcasts to the shape of the result."""
    pairs = zip(reversed(x.shape), reversed(result.shape), strict=False)
    fits = x.ndim <= result.ndim and all(a == 1 or same_dim(a, b) for a, b in pairs)
    require(name, fits, f"'x' has shape {show(x.shape)}", f"a shape that broadcasts to {show(result.shape)}")


def cross(x1: T, x2: T, axis: int = -1) -> T:
    """The cross products of vectors of 3 elements along an axis; shapes broadcast, dtypes promote.

    Raises TypeInferenceError for another size of the axis, different ranks, and shapes that do not broadcast."""
    shapes = f"shapes are {show(x1.shape)} and {show(x2.shape)}"
    require("cross", x1.ndim == x2.ndim > 0, shapes, "equal numbers of axes, at least one")
    axis = axis_index(axis, x1.ndim)
    sizes = [x.shape[axis] for x in (x1, x2)]
    require("cross", sizes == [3, 3], f"axis {axis} has the sizes {sizes[0]} and {sizes[1]}", "3 in both")
    next1, next2, last1, last2 = (meta.roll(x, shift, axis) for shift in (-1, -2) for x in (x1, x2))
    return next1 * last2 - last1 * next2


def bilinear(x1: T, x2: T, w: T, bias: T | None = None) -> T:
    """y[..., o] = sum over i and j of x1[..., i] * w[o, i, j] * x2[..., j], plus bias[o]. x1: (..., in1); x2: (...,
    in2), with equal leading axes; w: (out, in1, in2); bias: (out,). Raises ArgumentError for other shapes."""
    fits = x1.ndim >= 1 and x2.ndim >= 1 and w.ndim == 3
    fits = fits and equal_shapes(x1.shape[:-1], x2.shape[:-1])
    fits = fits and equal_shapes((x1.shape[-1], x2.shape[-1]), w.shape[1:])
    if not fits:
        problem = f"'x1' has shape {tuple(x1.shape)}, 'x2' {tuple(x2.shape)}, 'w' {tuple(w.shape)}"
        raise ArgumentError("bilinear", problem, "(..., in1), (..., in2) and (out, in1, in2)")
    y = meta.einsum("...i,oij,...j->...o", x1, w, x2)
    return y if bias is None else y + bias
