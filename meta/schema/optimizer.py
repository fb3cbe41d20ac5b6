"""Schemas of optimiser steps, which update tensors in place. Numbers that change from step to step may be tensors."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Bool, OptionalScalar, Scalar, Tensor

_x = Arg("x", Tensor, doc="The parameter, updated in place; floating.")
_dx = Arg("dx", Tensor, doc="Its gradient, of the same type.")
_learning_rate = Arg("learning_rate", Scalar, doc="Step size: a number or a 0-d tensor.")

sgd = Schema(
    "sgd",
    _x,
    _dx,
    Arg("v", Tensor, doc="The velocity, updated in place; of the shape of x, starting as zeros."),
    _learning_rate,
    Arg("momentum", Scalar, 0.0, doc="Decay factor of the velocity: a number or a 0-d tensor."),
    Arg("weight_decay", Scalar, 0.0, doc="Decay of the parameter towards 0: a number or a 0-d tensor."),
    Arg("nesterov", Bool, False, doc="Use Nesterov momentum: step along the velocity of the next step."),
)
adam = Schema(
    "adam",
    _x,
    _dx,
    Arg("m", Tensor, doc="Running mean of the gradient, updated in place; of the shape of x, starting as zeros."),
    Arg("v", Tensor, doc="Running mean of its square, updated in place; of the shape of x, starting as zeros."),
    Arg(
        "step",
        OptionalScalar,
        doc="Number of this step, from 1: a number or a 0-d tensor; None leaves m and v as they are.",
    ),
    _learning_rate,
    Arg("beta1", Scalar, 0.9, doc="Decay factor of m: a number or a 0-d tensor."),
    Arg("beta2", Scalar, 0.999, doc="Decay factor of v: a number or a 0-d tensor."),
    Arg("eps", Scalar, 1e-8, doc="Added to the square root of v: a number or a 0-d tensor."),
    Arg("weight_decay", Scalar, 0.0, doc="Decay of the parameter towards 0: a number or a 0-d tensor."),
    Arg("decoupled", Bool, True, doc="Shrink x itself (AdamW) instead of adding the decay to the gradient."),
)
