"""Schemas of Fourier transforms."""

from meta.schema._dsl import Arg, Bool, Choice, Int, IntTuple, Schema, Tensor

_axes = Arg("axes", IntTuple, doc="Axes to transform; distinct.")
_scale = Arg("scale", Choice("none", "root", "size"), "none",
             doc='What the sums are divided by: "none" 1, "root" the square root of the number of points, "size" their '
                 "number.")  # fmt: skip

c2c = Schema(
    "c2c",
    Arg("x", Tensor, doc="Signal, complex."),
    _axes,
    _scale,
    Arg(
        "forward", Bool, True, doc="Whether the sums are over exp(-2j * pi * k * n / N); else over exp(2j * pi * ...)."
    ),
)
r2c = Schema(
    "r2c",
    Arg("x", Tensor, doc="Signal, float32 or float64."),
    _axes,
    _scale,
    Arg("onesided", Bool, True, doc="Leave out the negative frequencies of the last of `axes`, which are conjugates."),
)
c2r = Schema(
    "c2r",
    Arg("x", Tensor, doc="Half of a Hermitian spectrum, complex: the last of `axes` has the frequencies from 0 up."),
    _axes,
    Arg("last_size", Int, doc="Size of the last of `axes` in the result: 2 * (m - 1) or 2 * m - 1 for m frequencies."),
    _scale,
)
