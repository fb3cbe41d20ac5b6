"""Schemas of neural-network operators."""

from meta.schema._dsl import Arg, Float, Int, Key, Schema, Tensor

softmax = Schema(
    "softmax",
    Arg("x", Tensor, doc="Input of any shape, floating."),
    Arg("axis", Int, -1, doc="Axis along which the result sums to one."),
)
softmax_dx = Schema(
    "softmax_dx",
    Arg("y", Tensor, doc="Result of the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result, of the same type."),
    Arg("axis", Int, -1, doc="The axis of the forward operator."),
)
bias_add = Schema(
    "bias_add",
    Arg("x", Tensor, doc="Input."),
    Arg("bias", Tensor, doc="One number for each index along `axis`, of the dtype of x."),
    Arg("axis", Int, 1, doc="Axis of x that bias is added along."),
)
dropout = Schema(
    "dropout",
    Arg("x", Tensor, doc="Input of any shape, floating."),
    Arg("key", Key, doc="Key of the random numbers, int64 of shape (2,); equal keys drop the same elements."),
    Arg("p", Float, 0.5, doc="Probability that an element is dropped, from 0 to 1."),
)
dropout_dx = Schema(
    "dropout_dx",
    Arg("dy", Tensor, doc="Gradient of the result."),
    Arg("mask", Tensor, doc="Mask returned by the forward operator, bool."),
    Arg("p", Float, 0.5, doc="As in the forward operator."),
)
