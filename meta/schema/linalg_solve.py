"""Schemas of inverses, solutions of linear systems, determinants and functions of matrices."""

from meta.schema._dsl import Arg, Bool, OptionalTensor, Schema, Tensor

_square = Arg("x", Tensor, doc="Square matrices, (..., n, n), float32 or float64.")
_a = Arg("a", Tensor, doc="Square matrices, (..., n, n), float32 or float64.")
_b = Arg("b", Tensor, doc="Right-hand sides, (..., n, k); batch axes broadcast.")
_check_errors = Arg(
    "check_errors", Bool, False, doc="Raise LinAlgError for a singular matrix, not only report it in `info`."
)

square = Schema("square", _square)
inv_ex = Schema("inv_ex", _square, _check_errors)
solve_ex = Schema("solve_ex", _a, _b, _check_errors)
solve_triangular = Schema(
    "solve_triangular",
    Arg("a", Tensor, doc="Triangular matrices, (..., n, n); the other triangle is not read."),
    _b,
    Arg("upper", Bool, doc="Whether a is upper triangular."),
    Arg("unitriangular", Bool, False, doc="Whether to take the diagonal of a as ones, without reading it."),
)
pinv = Schema(
    "pinv",
    Arg("x", Tensor, doc="Matrices, (..., m, n), float32 or float64."),
    Arg("atol", OptionalTensor, None, doc="Singular values up to this are zero; None: 0. It broadcasts to the batch."),
    Arg(
        "rtol",
        OptionalTensor,
        None,
        doc="The same as a fraction of the largest; None: max(m, n) times the spacing of "
        "numbers at 1, or 0 if atol is given.",
    ),
    Arg("hermitian", Bool, False, doc="Whether x is symmetric; then only the lower triangle is read."),
)
