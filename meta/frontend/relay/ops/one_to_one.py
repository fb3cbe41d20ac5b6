"""Relay operators that one operator of meta computes from the same tensors, without attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.frontend.relay.convert.call import OpCall, operands, rows
from meta.op.registry import get

OPERATORS = {
    # of one tensor
    "abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
    "copy": "copy", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp", "isfinite": "isfinite", "isinf": "isinf",
    "isnan": "isnan", "log": "log", "log10": "log10", "log2": "log2", "logical_not": "logical_not",
    "negative": "negative", "nn.relu": "relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "square": "square", "tan": "tan", "tanh": "tanh",
    # Relay's approximations: meta's own operators are fast and exact.
    "fast_erf": "erf", "fast_exp": "exp", "fast_tanh": "tanh",
    # of two tensors
    "add": "add", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "equal": "equal", "floor_divide": "floor_divide", "floor_mod": "mod", "greater": "greater",
    "greater_equal": "greater_equal", "left_shift": "left_shift", "less": "less", "less_equal": "less_equal",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor", "maximum": "maximum",
    "minimum": "minimum", "mod": "trunc_mod", "multiply": "multiply", "not_equal": "not_equal", "power": "power",
    "right_shift": "right_shift", "subtract": "subtract", "trunc_divide": "trunc_divide", "trunc_mod": "trunc_mod",
}  # fmt: skip
"""Relay's name -> meta's name."""


def one_operator(name: str) -> Callable[[OpCall], Any]:
    """The converter that calls the operator `name` of one or two tensors."""
    function: Any = getattr(meta, name)
    if len(get(name).schema.args) == 1:
        return lambda call: function(*call.tensors(1))
    return lambda call: function(*operands(call))


rows({relay_name: one_operator(name) for relay_name, name in OPERATORS.items()})
