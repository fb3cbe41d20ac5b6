"""Declarations of elementwise operators of one tensor."""

from meta.op.declare._standard import standard_unary, standard_unary_dx

standard_unary("exp", "e raised to each element.", aten="exp", relay="exp", onnx="Exp", amp="never")
standard_unary("negative", "Minus each element.", floating=False, aten="neg", relay="negative", onnx="Neg",
               operator="__neg__")  # fmt: skip
standard_unary("relu", "max(x, 0).", floating=False, aten="relu", relay="nn.relu", onnx="Relu")
standard_unary("tanh", "Hyperbolic tangent.", aten="tanh", relay="tanh", onnx="Tanh", amp="never")

standard_unary_dx("relu_dx", needs="y")
standard_unary_dx("tanh_dx", needs="y", amp="never")
