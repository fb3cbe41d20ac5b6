"""Declarations of eigenvalues of general matrices."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.ir.type import TensorType, TupleType
from meta.op import matrices
from meta.schema import linalg_eig as schema


@matrices.declare("eig", schema=schema.eig, outputs=("w", "v"), complex="as_is")
def eig(x: TensorType) -> TupleType:
    """Eigenvalues w (..., n), complex and in no order, and eigenvectors, the columns of v, of length 1: those of
    x v = v diag(w). Their phases are arbitrary: the gradient is that of losses that do not depend on them, for distinct
    eigenvalues."""
    matrices.require_square("x", x)
    result = x.with_dtype(dtypes.complex_dtype(x.dtype))
    return TupleType((result.with_shape(x.shape[:-1]), result))
