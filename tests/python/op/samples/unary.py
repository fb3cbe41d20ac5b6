"""Samples of elementwise operators of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

_NAN = float("nan")
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "abs": (torch.abs, {"avoid": (0,)}),
    "acos": (torch.acos, {"low": -0.9, "high": 0.9}),
    "acosh": (torch.acosh, {"low": 1.1, "high": 5}),
    "asin": (torch.asin, {"low": -0.9, "high": 0.9}),
    "asinh": (torch.asinh, {"low": -5, "high": 5}),
    "atan": (torch.atan, {"low": -5, "high": 5}),
    "atanh": (torch.atanh, {"low": -0.9, "high": 0.9}),
    "ceil": (torch.ceil, {"low": -5, "high": 5, "avoid": range(-5, 6)}),
    "celu": (F.celu, {"low": -3, "high": 3, "avoid": (0,)}),
    "copy": (torch.clone, {}),
    "cos": (torch.cos, {"low": -10, "high": 10}),
    "cosh": (torch.cosh, {"low": -4, "high": 4}),
    "deg2rad": (torch.deg2rad, {"low": -400, "high": 400}),
    "elu": (F.elu, {"low": -3, "high": 3, "avoid": (0,)}),
    "erf": (torch.erf, {"low": -4, "high": 4}),
    "erfc": (torch.erfc, {"low": -4, "high": 4}),
    "exp": (torch.exp, {"low": -5, "high": 5}),
    "exp2": (torch.exp2, {"low": -5, "high": 5}),
    "expm1": (torch.expm1, {"low": -5, "high": 5}),
    "floor": (torch.floor, {"low": -5, "high": 5, "avoid": range(-5, 6)}),
    "frac": (torch.frac, {"low": -5, "high": 5, "avoid": range(-5, 6)}),
    "gelu": (F.gelu, {"low": -4, "high": 4}),
    "leaky_relu": (F.leaky_relu, {"avoid": (0,)}),
    "log": (torch.log, {"low": 0.1, "high": 10}),
    "log10": (torch.log10, {"low": 0.1, "high": 10}),
    "log1p": (torch.log1p, {"low": -0.9, "high": 10}),
    "log2": (torch.log2, {"low": 0.1, "high": 10}),
    "logit": (torch.logit, {"low": 0.1, "high": 0.9}),
    "nan_to_num": (torch.nan_to_num, {}),
    "negative": (torch.neg, {}),
    "one_minus_square": (lambda x: (1 - 1.0 * x) * (1 + 1.0 * x), {"low": -2, "high": 2}),
    "rad2deg": (torch.rad2deg, {"low": -7, "high": 7}),
    "reciprocal": (torch.reciprocal, {"low": -3, "high": 3, "avoid": (0,)}),
    "relu": (torch.relu, {"avoid": (0,)}),
    "round": (torch.round, {"low": -5, "high": 5, "avoid": [i + 0.5 for i in range(-6, 6)]}),
    "rsqrt": (torch.rsqrt, {"low": 0.1, "high": 10}),
    "sigmoid": (torch.sigmoid, {"low": -8, "high": 8}),
    "sign": (torch.sign, {"avoid": (0,)}),
    "silu": (F.silu, {"low": -8, "high": 8}),
    "sin": (torch.sin, {"low": -10, "high": 10}),
    "sinc": (torch.sinc, {"low": 0.1, "high": 3}),
    "sinh": (torch.sinh, {"low": -4, "high": 4}),
    "softplus": (F.softplus, {"low": -8, "high": 8}),
    "sqrt": (torch.sqrt, {"low": 0.1, "high": 10}),
    "square": (torch.square, {"low": -5, "high": 5}),
    "tan": (torch.tan, {"low": -1.2, "high": 1.2}),
    "tanh": (torch.tanh, {"low": -5, "high": 5}),
    "threshold": (lambda x: F.threshold(x, 0.0, 0.0), {"avoid": (0,)}),
    "trunc": (torch.trunc, {"low": -5, "high": 5, "avoid": range(-5, 6)}),
}
"""Operator -> (reference, range of the sample)."""


def _backward(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The reference of a backward operator of (x, dy, ...): torch's gradient of the forward one."""

    def run(x: Any, dy: Any, *rest: Any) -> Any:
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()  # second order differentiates x itself
            return torch.autograd.grad(forward(x, *rest), x, dy, create_graph=True)[0]

    return run


SAMPLES = [
    *(Sample(name, T(3, 5, **spread), ref=ref) for name, (ref, spread) in FUNCTIONS.items()),
    *(
        Sample(name, T(**spread), ref=ref)
        for name, (ref, spread) in FUNCTIONS.items()
        if name in ("exp", "relu", "sign")
    ),
    *(
        Sample(name, T(2, 1, 3, 2, **spread), ref=ref)
        for name, (ref, spread) in FUNCTIONS.items()
        if name in ("tanh", "abs")
    ),
    Sample("bitwise_not", T(7, dtype="int32"), ref=torch.bitwise_not),
    Sample("bitwise_not", T(7, dtype="bool"), ref=torch.bitwise_not),
    Sample("celu", T(9, low=-3, high=3, avoid=(0,)), 0.5, ref=F.celu),
    Sample("clip", T(3, 5, low=-2, high=2, avoid=(-1, 1)), -1.0, 1.0, ref=torch.clamp),
    Sample("clip", T(9, low=-2, high=2, avoid=(0.5,)), min=0.5, ref=torch.clamp, id="min"),
    Sample("clip", T(9, low=-2, high=2, avoid=(0.5,)), max=0.5, ref=torch.clamp, id="max"),
    Sample("clip", T(9, low=-2, high=2), 1.0, -1.0, ref=torch.clamp, id="max-wins"),
    Sample("clip", T(9, dtype="int64"), -2, 2, ref=torch.clamp, id="ints"),
    Sample("clip", T(9, dtype="int32"), -2, 2.5, ref=torch.clamp, id="ints-float-bound"),
    # torch ignored such a bound of integers before 2.13.
    Sample("clip", T(9, dtype="int64"), min=_NAN, ref=lambda x, min: torch.full(x.shape, min), id="ints-nan-bound"),
    Sample("clip", T(9, low=-2, high=2), -1.0, _NAN, ref=torch.clamp, grad=False, id="nan-bound"),
    Sample("clip_dx", T(9, low=-2, high=2, avoid=(-1, 1)), T(9), -1.0, 1.0, ref=_backward(torch.clamp)),
    Sample("elu", T(9, low=-3, high=3, avoid=(0,)), 0.5, ref=F.elu),
    Sample("elu_dx", T(9, low=-3, high=3, avoid=(0,)), T(9), 0.5, ref=_backward(F.elu)),
    Sample("erf_dx", T(9, low=-3, high=3), T(9), ref=_backward(torch.erf)),
    Sample("gelu", T(9, low=-4, high=4), "tanh", ref=lambda x, approximate: F.gelu(x, approximate=approximate)),
    Sample("gelu_dx", T(9, low=-4, high=4), T(9), ref=_backward(F.gelu)),
    Sample("gelu_dx", T(9, low=-4, high=4), T(9), "tanh", ref=_backward(lambda x, a: F.gelu(x, approximate=a))),
    *(
        Sample(name, T(9, dtype=dtype), ref=getattr(torch, name))
        for name in ("isfinite", "isinf", "isnan", "isneginf", "isposinf", "logical_not", "signbit")
        for dtype in ("float32", "int32", "bool")
    ),
    Sample("logit", T(9, low=-0.5, high=1.5, avoid=(0.25, 0.75)), 0.25, ref=torch.logit),
    Sample("leaky_relu", T(9, avoid=(0,)), 0.3, ref=F.leaky_relu),
    Sample("frexp", T(3, 5, low=-9, high=9, avoid=(0,)), ref=torch.frexp),
    Sample("leaky_relu_dx", T(9, avoid=(0,)), T(9), 0.3, ref=_backward(F.leaky_relu)),
    Sample("reciprocal_dx", T(9, low=0.5, high=2), T(9), ref=lambda y, dy: -dy * y * y),
    Sample("relu_dx", T(9, avoid=(0,)), T(9), ref=lambda y, dy: dy * (y > 0)),
    *(
        Sample("round", T(9, low=-5, high=5), decimals, ref=lambda x, d: torch.round(x, decimals=d), grad=False)
        for decimals in (2, -1)
    ),
    Sample("rsqrt_dx", T(9, low=0.5, high=2), T(9), ref=lambda y, dy: dy * y**3 * -0.5),
    Sample("sigmoid_dx", T(9, low=0, high=1), T(9), ref=lambda y, dy: dy * y * (1 - y)),
    Sample("silu_dx", T(9, low=-4, high=4), T(9), ref=_backward(F.silu)),
    Sample("softplus", T(9, low=-4, high=4), 2.0, ref=F.softplus),
    Sample("softplus", T(9, low=-2, high=2), 3.0, 1.5, ref=F.softplus),
    Sample("softplus_dx", T(9, low=-4, high=4), T(9), ref=_backward(F.softplus)),
    Sample("sqrt_dx", T(9, low=0.5, high=2), T(9), ref=lambda y, dy: dy / (2 * y)),
    Sample("tanh_dx", T(9), T(9), ref=lambda y, dy: dy * (1 - y * y)),
    Sample("threshold", T(9, low=-2, high=2, avoid=(0.5,)), 0.5, 9.0, ref=F.threshold),
    Sample("threshold_dx", T(9, low=-2, high=2, avoid=(0.5,)), T(9), 0.5, ref=lambda x, dy, t: dy * (x > t)),
]
ERRORS = [
    ErrorCase("clip", T(3, dtype="int8"), -1000, 5, error=TypeInferenceError, match="-1000 does not fit into int8"),
    ErrorCase("round", T(3, dtype="int32"), 2, error=TypeInferenceError, match="decimals is 2, x is int32"),
    ErrorCase("abs", T(3, dtype="bool"), error=TypeInferenceError, match="'x' has dtype bool"),
    ErrorCase("bitwise_not", T(3), error=TypeInferenceError, match="'x' has dtype float32"),
    ErrorCase("clip", T(3), error=TypeInferenceError, match="both bounds are None"),
    ErrorCase("relu_dx", T(3), T(4), error=TypeInferenceError, match="'y' has shape (3,), 'dy' has (4,)"),
    ErrorCase(
        "tanh_dx", T(3), T(3, dtype="float64"), error=TypeInferenceError, match="'y' is float32, 'dy' is float64"
    ),
]
