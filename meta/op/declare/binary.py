"""Declarations of elementwise operators of two operands."""

import operator

from meta.op.declare._standard import standard_binary

standard_binary("add", "x1 + x2.", scalar=operator.add, operator="__add__", aten="add.Tensor", relay="add", onnx="Add")
standard_binary("subtract", "x1 - x2.", scalar=operator.sub, operator="__sub__", aten="sub.Tensor", relay="subtract",
                onnx="Sub")  # fmt: skip
standard_binary("multiply", "x1 * x2.", scalar=operator.mul, operator="__mul__", aten="mul.Tensor", relay="multiply",
                onnx="Mul")  # fmt: skip
