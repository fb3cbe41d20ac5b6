"""Schemas of optimiser steps. They update tensors in place; numbers that schedules change may be tensors."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Bool, Float, Scalar, Tensor

_x = Arg("x", Tensor, doc="The parameter, updated in place; floating.")
_dx = Arg("dx", Tensor, doc="Its gradient, of the same type.")
_learning_rate = Arg("learning_rate", Scalar, doc="Step size: a number or a 0-d tensor.")
_weight_decay = Arg("weight_decay", Float, 0.0, doc="Decay of the parameter towards 0.")

sgd = Schema(
    "sgd",
    _x,
    _dx,
    Arg("v", Tensor, doc="The velocity, updated in place; of the shape of x, starting as zeros."),
    _learning_rate,
    Arg("momentum", Float, 0.0, doc="How much of the velocity is kept."),
    _weight_decay,
    Arg("nesterov", Bool, False, doc="Step along the velocity of the next step (Y. Nesterov's method)."),
)
adam = Schema(
    "adam",
    _x,
    _dx,
    Arg("m", Tensor, doc="Running mean of the gradient, updated in place; of the shape of x, starting as zeros."),
    Arg("v", Tensor, doc="Running mean of its square, updated in place; of the shape of x, starting as zeros."),
    Arg("step", Scalar, doc="Number of this step, from 1: a number or a 0-d tensor."),
    _learning_rate,
    Arg("beta1", Float, 0.9, doc="How much of m is kept."),
    Arg("beta2", Float, 0.999, doc="How much of v is kept."),
    Arg("eps", Float, 1e-8, doc="Added to the root of v."),
    _weight_decay,
    Arg("decoupled", Bool, True, doc="Shrink x itself (AdamW) instead of adding the decay to the gradient."),
)
