"""Operators that ONNX and meta have under different names: meta's name -> ONNX's.

Both directions use these tables: the reader's rows (`ops`) call meta's operator, and the writer's (`export_ops`) write
ONNX's node. An operator of one of these kinds is read and written as soon as it is listed here.
"""

from __future__ import annotations

from typing import Final

UNARY: Final = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "hardswish": "HardSwish", "isnan": "IsNaN", "log": "Log", "mish": "Mish", "negative": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
"""Elementwise operators of one tensor, without attributes."""

ARITHMETIC: Final = {"add": "Add", "multiply": "Mul", "subtract": "Sub"}
"""Operators of two tensors of the result's dtype."""

VARIADIC: Final = {"maximum": "Max", "minimum": "Min"}
"""Operators of two tensors, which ONNX applies to any number of them."""

COMPARISONS: Final = {
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual",
}  # fmt: skip
"""Operators of two tensors of one dtype, whose results are flags."""

LOGICAL: Final = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
"""Operators of flags."""

BITWISE: Final = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}

REDUCTIONS: Final = {
    "logsumexp": "ReduceLogSumExp", "max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin", "prod": "ReduceProd",
    "sum": "ReduceSum",
}  # fmt: skip
"""Reductions along axes."""
