"""Which operands ATen takes as numbers: functions of meta take them more freely."""

from __future__ import annotations

from typing import Any

from meta.errors import ArgumentError
from meta.schema._dsl import TensorLike

NUMBER_FIRST = frozenset({
    "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bucketize",
    "float_power", "isin", "pow", "remainder", "special_xlog1py", "special_xlogy", "special_zeta", "xlogy",
})  # fmt: skip
"""Operators that take a number as `self` if another operand is a tensor."""

TENSOR_PAIRS = frozenset({
    "allclose", "arctan2", "atan2", "complex", "dist", "equal", "fmax", "fmin", "gcd", "heaviside", "hypot", "igamma",
    "igammac", "inner", "isclose", "kron", "lcm", "ldexp", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "nextafter", "polar", "special_gammainc", "special_gammaincc",
})  # fmt: skip
"""Operators whose first two operands are tensors."""


def check_operands(name: str, operands: tuple[Any, ...]) -> None:
    """Raise ArgumentError for numbers where the operator's overloads have tensors."""
    if not operands or isinstance(operands[0], (TensorLike, list, tuple)):
        if name in TENSOR_PAIRS and len(operands) > 1 and isinstance(operands[1], (bool, int, float, complex)):
            raise ArgumentError(name, f"the second operand is {operands[1]!r}", "a tensor", "use meta.array(x)")
        return
    if not isinstance(operands[0], (bool, int, float, complex)):
        return
    if name not in NUMBER_FIRST or not any(isinstance(x, TensorLike) for x in operands[1:]):
        raise ArgumentError(name, f"the first operand is {operands[0]!r}", "a tensor", "use meta.array(x)")
