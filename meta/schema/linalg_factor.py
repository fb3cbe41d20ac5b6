"""Schemas of matrix factorizations."""

from meta.schema._dsl import Arg, Bool, Int, Schema, Tensor

_x = Arg("x", Tensor, doc="Matrices, (..., m, n), float32 or float64.")
_square = Arg("x", Tensor, doc="Square matrices, (..., n, n), float32 or float64.")
_check_errors = Arg(
    "check_errors", Bool, False, doc="Raise LinAlgError for a matrix without a result, instead of saying so in `info`."
)

cholesky_ex = Schema(
    "cholesky_ex",
    Arg("x", Tensor, doc="Symmetric positive-definite matrices, (..., n, n); one triangle is read."),
    Arg("upper", Bool, False, doc="Whether to read the upper triangle and return the upper factor."),
    _check_errors,
)
lu_factor_ex = Schema(
    "lu_factor_ex",
    _x,
    Arg("pivot", Bool, True, doc="Whether to exchange rows, without which small pivots cost accuracy."),
    _check_errors,
)
pivots_to_permutation = Schema(
    "pivots_to_permutation",
    Arg("pivots", Tensor, doc="Row exchanges of `lu_factor_ex`, (..., k): row i was exchanged with row pivots[i] - 1."),
    Arg("size", Int, doc="The number of rows, at least k."),
)
qr = Schema("qr", _x, Arg("complete", Bool, False, doc="Whether q is square, (..., m, m), and r as large as x."))
svd = Schema(
    "svd",
    _x,
    Arg("full_matrices", Bool, True, doc="Whether u and vh are square; otherwise they have k = min(m, n) vectors."),
)
eigh = Schema("eigh", _square, Arg("upper", Bool, False, doc="Whether to read the upper triangle of x, not the lower."))
