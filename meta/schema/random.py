"""Schemas of random operators, which are pure functions: equal keys give equal numbers."""

from meta.schema._dsl import Arg, DType, Float, Int, IntTuple, Key, Schema, Tensor

_key = Arg("key", Key, doc="Seed and offset of the random numbers, int64 of shape (2,); see meta.random.next_key.")
_shape = Arg("shape", IntTuple, doc="Shape of the result.")
_dtype = Arg("dtype", DType, "float32", doc="Dtype of the result, floating.")

uniform = Schema(
    "uniform",
    _key,
    _shape,
    Arg("low", Float, 0.0, doc="Lower end, included."),
    Arg("high", Float, 1.0, doc="Upper end, not included."),
    _dtype,
)
normal = Schema(
    "normal",
    _key,
    _shape,
    Arg("mean", Float, 0.0, doc="Mean."),
    Arg("std", Float, 1.0, doc="Standard deviation, not negative."),
    _dtype,
)
randint = Schema(
    "randint",
    _key,
    _shape,
    Arg("low", Int, doc="Least value."),
    Arg("high", Int, doc="Upper end, not included."),
    Arg("dtype", DType, "int64", doc="Dtype of the result; its range includes [low, high)."),
)
bernoulli = Schema(
    "bernoulli",
    _key,
    _shape,
    Arg("p", Float, 0.5, doc="Probability of a one, in [0, 1]."),
    Arg("dtype", DType, "float32", doc="Dtype of the result."),
)
poisson = Schema("poisson", _key, Arg("rate", Tensor, doc="Mean of each number, floating, of any shape."))
standard_gamma = Schema(
    "standard_gamma", _key, Arg("alpha", Tensor, doc="Shape parameter of each number's distribution, floating.")
)
standard_gamma_grad = Schema(
    "standard_gamma_grad",
    Arg("alpha", Tensor, doc="Shape parameters, floating."),
    Arg("sample", Tensor, doc="Numbers of these gamma distributions; the shape broadcasts with the shape of alpha."),
)
