"""Schemas of attention."""

from meta.schema._dsl import Arg, Bool, Float, Optional, Schema, Tensor

_Q = Arg("q", Tensor, doc="Queries, (..., length, features), floating.")
_K = Arg("k", Tensor, doc="Keys, (..., other length, features).")
_V = Arg("v", Tensor, doc="Values, (..., other length, value features).")
_CAUSAL = Arg("causal", Bool, False, doc="Whether query i attends only to keys 0 to i.")
_SCALE = Arg("scale", Optional(Float), None, doc="Multiplies the scores; None for 1 / sqrt(features).")
_BIAS = Arg(
    "bias", Optional(Tensor), None, doc="Numbers added to the scores, which it broadcasts to; -inf hides a key."
)

attention_with_lse = Schema("attention_with_lse", _Q, _K, _V, _CAUSAL, _SCALE, _BIAS)
attention_with_lse_dx = Schema(
    "attention_with_lse_dx",
    _Q,
    _K,
    _V,
    Arg("y", Tensor, doc="Result of the forward operator."),
    Arg("lse", Tensor, doc="Logarithms of the sums of exponentials, from the forward operator."),
    Arg("dy", Tensor, doc="Gradient of the result."),
    _CAUSAL,
    _SCALE,
    _BIAS,
)
