"""The common dtype of tensor types and Python scalars."""

from __future__ import annotations

from meta import dtype as dtypes
from meta.ir.type import TensorType

ScalarOrType = TensorType | dtypes.Number


def promoted_dtype(*args: ScalarOrType) -> str:
    """The common dtype of tensors and Python scalars (meta.dtype's promotion; scalars only raise the category)."""
    tensors = [a.dtype for a in args if isinstance(a, TensorType)]
    scalars = [a for a in args if not isinstance(a, TensorType)]
    if not tensors:
        return dtypes.scalar_dtype(*scalars)
    out = tensors[0]
    for dtype in tensors[1:]:
        out = dtypes.promote(out, dtype)
    for value in scalars:
        out = dtypes.promote_scalar(out, value)
    return out


def operand_dtype(*args: ScalarOrType) -> str:
    """The dtype in which operands are compared: their common one, or int64 if that is an integer dtype that does not
    hold one of the Python numbers. uint64 and a negative number are compared in float64, which rounds no value below
    0."""
    out = promoted_dtype(*args)
    if not dtypes.is_int(out):
        return out
    low, high = dtypes.int_range(out)
    if all(low <= a <= high for a in args if isinstance(a, int)):
        return out
    return "float64" if out == "uint64" else "int64"
