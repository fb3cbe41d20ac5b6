"""Schemas of eigenvalues of general matrices."""

from meta.schema._dsl import Arg, Schema, Tensor

eig = Schema("eig", Arg("x", Tensor, doc="Square matrices (..., n, n), floating or complex."))
