"""Declarations of eigenvalues of general matrices."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.ir.type import TensorType, TupleType
from meta.op import matrices
from meta.schema import linalg_eig as schema


@matrices.declare("eig", schema=schema.eig, outputs=("w", "v"), complex="as_is")
def eig(x: TensorType) -> TupleType:
    """Eigenvalues w (..., n), complex and in no order, and eigenvectors of length 1, the columns of v: x v = v diag(w).
    Their phases are arbitrary: the gradient is for losses that do not depend on them, and for distinct eigenvalues."""
    matrices.require_square("x", x)
    result = x.with_dtype(dtypes.complex_dtype(x.dtype))
    return TupleType((result.with_shape(x.shape[:-1]), result))
