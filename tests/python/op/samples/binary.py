"""Samples of elementwise operators of two operands, and of the choice between two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T

INTS = ("int32", "int64", "uint8")


def trunc_divide(x1: Any, x2: Any) -> Any:
    return torch.div(x1, x2, rounding_mode="trunc")


def floor_divide(x1: Any, x2: Any) -> Any:
    """torch.floor_divide, which has no gradient, in a form that has."""
    return torch.div(x1, x2, rounding_mode="floor")


ARITHMETIC: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "add": (torch.add, {}, {}),
    "atan2": (torch.atan2, {}, {"avoid": (0,)}),
    "copysign": (torch.copysign, {"avoid": (0,)}, {"avoid": (0,)}),
    "divide": (torch.div, {}, {"low": -2, "high": 2, "avoid": (0,)}),
    "floor_divide": (floor_divide, {"low": 0.1, "high": 9}, {"low": 10, "high": 11}),
    "fmax": (torch.fmax, {"low": 0, "high": 2}, {"low": -2, "high": 0}),
    "fmin": (torch.fmin, {"low": 0, "high": 2}, {"low": -2, "high": 0}),
    "hypot": (lambda x1, x2: torch.hypot(1.0 * x1, 1.0 * x2), {}, {"avoid": (0,)}),
    "logaddexp": (lambda x1, x2: torch.logaddexp(1.0 * x1, 1.0 * x2), {}, {}),
    "logaddexp2": (lambda x1, x2: torch.logaddexp2(1.0 * x1, 1.0 * x2), {}, {}),
    "maximum": (torch.maximum, {"low": 0, "high": 2}, {"low": -2, "high": 0}),
    "minimum": (torch.minimum, {"low": 0, "high": 2}, {"low": -2, "high": 0}),
    "mod": (torch.remainder, {"low": 1.1, "high": 1.9}, {"low": 2, "high": 3}),
    "multiply": (torch.mul, {}, {}),
    "power": (torch.pow, {"low": 0.5, "high": 2}, {"low": -2, "high": 2}),
    "subtract": (torch.sub, {}, {}),
    "trunc_divide": (trunc_divide, {"low": 0.1, "high": 9}, {"low": 10, "high": 11}),
    "trunc_mod": (torch.fmod, {"low": 1.1, "high": 1.9}, {"low": 2, "high": 3}),
    "xlog1py": (torch.special.xlog1py, {"avoid": (0,)}, {"low": 0.1, "high": 3}),
    "xlogy": (torch.xlogy, {"avoid": (0,)}, {"low": 0.1, "high": 3}),
}
"""Operator -> (reference, ranges of both operands, where the gradient is smooth)."""
COMPARISONS: dict[str, Callable[..., Any]] = {
    "equal": torch.eq,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "not_equal": torch.ne,
}
BITS: dict[str, Callable[..., Any]] = {
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}


def _share(better: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x1, x2, dy: torch.where(x1 == x2, dy / 2, torch.where(better(x1, x2), dy, 0))


def _addc(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, x1, x2, value: function(x, x1, x2, value=value)


def _atan2_dx(x1: Any, x2: Any, dy: Any) -> Any:
    square = x1 * x1 + x2 * x2
    return torch.where(square == 0, 0, dy * x2 / torch.where(square == 0, 1, square))


def _lerp(x1: Any, x2: Any, weight: Any) -> Any:
    x1, x2 = 1.0 * x1, 1.0 * x2
    return torch.lerp(x1, x2, weight if isinstance(weight, float) else 1.0 * weight)


def _nextafter(x1: Any, x2: Any) -> Any:
    """torch.nextafter, for float16 by NumPy, as torch has no kernel."""
    if x1.dtype == torch.float16:
        stepped = torch.from_numpy(np.nextafter(x1.detach().numpy(), x2.detach().numpy()))
        return x1 + (stepped - x1.detach())
    return torch.nextafter(x1, x2)


def _where(condition: Any, x: Any, y: Any) -> Any:
    return torch.where(condition, x, y)


def _heaviside(x1: Any, x2: Any) -> Any:
    """torch's own has no gradient."""
    step = torch.heaviside(x1.detach(), x2.detach())
    return torch.where(x1 == 0, x2, step)


SAMPLES = [
    # Integers run in the first row of an operator, so those with a remainder have rows of their own for them.
    *(Sample(name, T(3, 5, **a), T(3, 5, **b), ref=ref) for name, (ref, a, b) in ARITHMETIC.items()),
    *(Sample(name, T(3, 1, 2, **a), T(5, 2, **b), ref=ref) for name, (ref, a, b) in ARITHMETIC.items()),
    *(
        Sample(name, T(**a), T(4, **b), ref=ref)
        for name, (ref, a, b) in ARITHMETIC.items()
        if name in ("add", "divide")
    ),
    *(
        Sample(name, T(3, 5, **a), 2.0, ref=lambda x1, x2, f=ref: f(x1, torch.tensor(x2, dtype=x1.dtype)), id="number")
        for name, (ref, a, _) in ARITHMETIC.items()
        if name != "mod"
    ),
    *(
        Sample(
            name,
            2.0,
            T(3, 5, **b),
            ref=lambda x1, x2, f=ref: f(torch.tensor(x1, dtype=x2.dtype), x2),
            id="number-first",
        )
        for name, (ref, _, b) in ARITHMETIC.items()
        if name not in ("mod", "floor_divide")
    ),
    *(
        Sample(
            name,
            T(40, dtype=dtype, low=0 if dtype == "uint8" else -9, high=9),
            T(40, dtype=dtype, low=1, high=5),
            ref=ref,
        )
        for name, ref in {"floor_divide": torch.floor_divide, "mod": torch.remainder}.items()
        for dtype in INTS
    ),
    *(
        Sample(name, T(40, low=-9, high=9), T(40, low=-5, high=-1), ref=ref, grad=False, id="negative")
        for name, ref in {"floor_divide": torch.floor_divide, "mod": torch.remainder}.items()
    ),
    *(Sample("power", T(20, dtype=d, low=0, high=5), T(20, dtype=d, low=0, high=6), ref=torch.pow) for d in INTS),
    *(Sample("power", T(5, low=-2, high=2, avoid=(0,)), n, ref=torch.pow) for n in (-2, -1, 0, 1, 2, 3, 5)),
    Sample("maximum", T(9, dtype="int32"), T(9, dtype="int64"), ref=torch.maximum, id="mixed"),
    Sample("add", T(3, dtype="int32"), T(3), ref=torch.add, id="mixed"),
    Sample("add", T(3, dtype="bool"), T(3, dtype="uint8"), ref=torch.add, id="bool-mixed"),
    Sample("divide", T(9, dtype="int32"), T(9, dtype="int64", low=1, high=5), ref=torch.div, id="ints"),
    *(
        Sample(name, T(3, 5, dtype="int64", low=-2, high=2), T(5, dtype="int64", low=-2, high=2), ref=ref)
        for name, ref in COMPARISONS.items()
    ),
    *(Sample(name, T(3, 5), T(5), ref=ref) for name, ref in COMPARISONS.items()),
    *(
        Sample(name, T(3, 5), 0.25, ref=lambda x1, x2, f=ref: f(x1, torch.tensor(x2, dtype=x1.dtype)), id="number")
        for name, ref in COMPARISONS.items()
    ),
    *(
        Sample(name, T(9, dtype=d), T(9, dtype=d), ref=ref)
        for name, ref in BITS.items()
        for d in ("int32", "uint8", "bool")
    ),
    *(
        Sample(name, T(9, dtype=d, low=-99 if d != "uint8" else 0, high=99), T(9, dtype=d, low=0, high=9), ref=ref)
        for name, ref in {"left_shift": torch.bitwise_left_shift, "right_shift": torch.bitwise_right_shift}.items()
        for d in INTS
    ),
    *(
        Sample(name, T(40, dtype=d, low=0 if d == "uint8" else -99, high=99), T(40, dtype=d, low=0, high=60), ref=ref)
        for name, ref in {"gcd": torch.gcd, "lcm": torch.lcm}.items()
        for d in INTS
    ),
    Sample("heaviside", T(3, 5, avoid=(0,)), T(3, 5), ref=_heaviside),
    Sample("heaviside", T(9, dtype="int32", low=-2, high=2), T(9, dtype="int32"), ref=torch.heaviside),
    Sample("nextafter", T(3, 5), T(3, 5), ref=_nextafter),
    Sample("addcdiv", T(3, 5), T(5), T(3, 1, low=0.5, high=2), 0.5, ref=_addc(torch.addcdiv)),
    Sample("addcmul", T(3, 5), T(5), T(3, 1), 0.5, ref=_addc(torch.addcmul)),
    Sample("addcmul", T(5, dtype="int32"), T(5, dtype="int32"), T(5, dtype="int32"), 2, ref=_addc(torch.addcmul)),
    Sample("lerp", T(3, 5), T(5), T(3, 1), ref=_lerp),
    Sample("lerp", T(3, 5), T(3, 5), 0.75, ref=_lerp),
    Sample("maximum_dx", T(3, 5), T(3, 5), T(3, 5), ref=_share(torch.gt)),
    Sample("minimum_dx", T(3, 5), T(3, 5), T(3, 5), ref=_share(torch.lt)),
    Sample("atan2_dx", T(3, 5), T(5), T(3, 5), ref=_atan2_dx, grad=True),
    Sample(
        "hypot_dx", T(3, 5), T(5), T(3, 5, low=1, high=2), T(3, 5), ref=lambda x1, x2, y, dy: dy * x1 / y, grad=False
    ),
    Sample("where", T(3, 5, dtype="bool"), T(3, 5), T(3, 5), ref=_where),
    Sample("where", T(3, 1, dtype="bool"), T(5), T(2, 1, 1), ref=_where),
    Sample("where", T(3, dtype="bool"), T(3), 0.0, ref=_where, id="number"),
    Sample("where", T(3, dtype="bool"), T(3, dtype="int32"), T(3), ref=_where, id="mixed"),
    Sample("where", T(3, dtype="bool"), 1, 0, ref=_where, id="numbers"),
]
ERRORS = [
    ErrorCase("add", T(3), T(4), error=TypeInferenceError, match="shapes (3,) and (4,) do not broadcast"),
    ErrorCase("gcd", T(3), T(3), error=TypeInferenceError, match="'x1' has dtype float32"),
    ErrorCase("nextafter", T(3, dtype="int32"), 1, error=TypeInferenceError, match="'x1' has dtype int32"),
    ErrorCase("addcdiv", T(3, dtype="int32"), 1, 2, error=TypeInferenceError, match="'x' has dtype int32"),
    ErrorCase("addcmul", T(3, dtype="int32"), 1, 2, 0.5, error=TypeInferenceError, match="value is 0.5"),
    ErrorCase("bitwise_and", T(3), T(3), error=TypeInferenceError, match="'x1' has dtype float32"),
    ErrorCase("left_shift", T(3), 1, error=TypeInferenceError, match="'x1' has dtype float32"),
    ErrorCase("subtract", T(3, dtype="bool"), T(3, dtype="bool"), error=TypeInferenceError, match="has dtype bool"),
    ErrorCase(
        "add",
        T(3, dtype="int8"),
        300,
        error=TypeInferenceError,
        match="the number 300 does not fit into int8; expected -128 to 127",
    ),
    ErrorCase("multiply", 1 << 64, T(3, dtype="int64"), error=TypeInferenceError, match="does not fit into int64"),
    ErrorCase("add", T(3), 1 << 2000, error=TypeInferenceError, match="an integer of 2001 bits does not fit"),
    ErrorCase("where", T(3, dtype="bool"), T(3, dtype="int8"), 128, error=TypeInferenceError, match="128 does not fit"),
    ErrorCase("where", T(3), T(3), T(3), error=TypeInferenceError, match="'condition' has dtype float32"),
    ErrorCase("minimum_dx", 1, 2, T(4), error=TypeInferenceError, match="all operands are numbers; expected an array"),
    ErrorCase("maximum_dx", T(3), T(3), T(4), error=TypeInferenceError, match="'y' has shape (3,), 'dy' has (4,)"),
]
