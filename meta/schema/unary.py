"""Schemas of elementwise operators of one tensor and of their backward operators."""

from meta.schema._dsl import Arg, Choice, Float, Int, Number, Optional, Schema, Tensor

_x = Arg("x", Tensor, doc="Input of any shape.")
forward_x = Arg("x", Tensor, doc="Input of the forward operator.")
dy = Arg("dy", Tensor, doc="Gradient of the result, of the same type.")
_alpha = Arg("alpha", Float, 0.01, doc="Slope for negative x.")
_scale = Arg("alpha", Float, 1.0, doc="Minus the limit for x -> -inf.")
_approximate = Arg("approximate", Choice("none", "tanh"), "none",
                   doc='"none" for the exact form, "tanh" for the cheaper approximation.')  # fmt: skip
_min = Arg("min", Optional(Number), None, doc="Lower bound; None for no bound.")
_max = Arg("max", Optional(Number), None, doc="Upper bound; None for no bound. Takes precedence over `min`.")
_threshold = Arg("threshold", Float, 0.0, doc="Elements up to this value are replaced.")

unary = Schema("unary", _x)
unary_dx_y = Schema("unary_dx_y", Arg("y", Tensor, doc="Result of the forward operator."), dy)
unary_dx_x = Schema("unary_dx_x", forward_x, dy)
leaky_relu = Schema("leaky_relu", _x, _alpha)
leaky_relu_dx = Schema("leaky_relu_dx", forward_x, dy, _alpha)
elu = Schema("elu", _x, _scale)
elu_dx = Schema("elu_dx", forward_x, dy, _scale)
softplus = Schema(
    "softplus",
    _x,
    Arg("beta", Float, 1.0, doc="Sharpness of the bend at zero; must not be 0."),
    Arg("threshold", Optional(Float), None, doc="x itself where beta * x is above it; None for the exact function."),
)
logit = Schema(
    "logit", _x, Arg("eps", Optional(Float), None, doc="x is first limited to [eps, 1 - eps]; None for no limits.")
)
nan_to_num = Schema(
    "nan_to_num",
    _x,
    Arg("nan", Float, 0.0, doc="Replaces NaN."),
    Arg("posinf", Optional(Float), None, doc="Replaces infinity; None for the largest number of the dtype."),
    Arg("neginf", Optional(Float), None, doc="Replaces minus infinity; None for the least number of the dtype."),
)
round = Schema(
    "round", _x, Arg("decimals", Int, 0, doc="Digits after the decimal point; negative ones count before it.")
)
gelu = Schema("gelu", _x, _approximate)
gelu_dx = Schema("gelu_dx", forward_x, dy, _approximate)
clip = Schema("clip", _x, _min, _max)
clip_dx = Schema("clip_dx", forward_x, dy, _min, _max)
threshold = Schema("threshold", _x, _threshold, Arg("value", Float, 0.0, doc="Value that replaces them."))
threshold_dx = Schema("threshold_dx", forward_x, dy, _threshold)
