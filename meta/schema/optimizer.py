"""Schemas of optimiser steps, which update tensors in place. Numbers that change from step to step may be tensors."""

from meta.schema._dsl import Arg, Bool, OptionalScalar, Scalar, Schema, Tensor

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
_m = Arg("m", Tensor, doc="Running mean of the gradient, updated in place; of the shape of x, starting as zeros.")
_v = Arg("v", Tensor, doc="Running mean of its square, updated in place; of the shape of x, starting as zeros.")
_eps = Arg("eps", Scalar, 1e-8, doc="Added to the square root: a number or a 0-d tensor.")
_weight_decay = Arg("weight_decay", Scalar, 0.0, doc="Decay of the parameter towards 0: a number or a 0-d tensor.")
_adam = (
    Arg("step", OptionalScalar, doc="Number of this step, from 1: a number or a 0-d tensor; None: no correction."),
    _learning_rate,
    Arg("beta1", Scalar, 0.9, doc="Decay factor of m: a number or a 0-d tensor."),
    Arg("beta2", Scalar, 0.999, doc="Decay factor of v: a number or a 0-d tensor."),
    _eps,
    _weight_decay,
    Arg("decoupled", Bool, True, doc="Shrink x itself (AdamW) instead of adding the decay to the gradient."),
)
adam = Schema("adam", _x, _dx, _m, _v, *_adam)
amsgrad = Schema(
    "amsgrad",
    _x,
    _dx,
    _m,
    _v,
    Arg("v_max", Tensor, doc="The largest v so far, updated in place; of the shape of x, starting as zeros."),
    *_adam,
)
adagrad = Schema(
    "adagrad",
    _x,
    _dx,
    Arg("total", Tensor, doc="Sum of the squared gradients, updated in place; of the shape of x."),
    _learning_rate,
    Arg("eps", Scalar, 1e-10, doc="Added to the square root: a number or a 0-d tensor."),
    _weight_decay,
)
_rmsprop = (
    _learning_rate,
    Arg("alpha", Scalar, 0.99, doc="Decay factor of the running means: a number or a 0-d tensor."),
    _eps,
    _weight_decay,
    Arg("momentum", Scalar, 0.0, doc="Decay factor of the velocity: a number or a 0-d tensor."),
)
_velocity = Arg("velocity", Tensor, doc="The velocity, updated in place; of the shape of x, starting as zeros.")
rmsprop = Schema("rmsprop", _x, _dx, _v, _velocity, *_rmsprop)
rmsprop_centered = Schema("rmsprop_centered", _x, _dx, _v, _velocity, _m, *_rmsprop)
