"""Schemas of eigenvalues of general matrices."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Tensor

eig = Schema("eig", Arg("x", Tensor, doc="Square matrices (..., n, n), floating or complex."))
