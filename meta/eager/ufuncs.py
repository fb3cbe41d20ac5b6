"""NumPy's functions on arrays and symbols: `np.sin(x)` and `host + x` run the operators of the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta.errors import NotSupportedError
from meta.schema._dsl import TensorLike

OPERATORS: Mapping[str, str] = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj",
    "fabs": "abs", "fmod": "trunc_mod", "invert": "bitwise_not",
    "remainder": "mod", "rint": "round",
} | {
    name: name
    for name in (
        "add", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "divide", "equal", "exp", "exp2",
        "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "isfinite", "isinf", "isnan",
        "left_shift", "less", "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
        "logical_xor", "matmul", "maximum", "minimum", "multiply", "negative", "not_equal", "power", "reciprocal",
        "right_shift", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc",
    )
}  # fmt: skip
"""NumPy's universal functions, by `__name__`, and the operators that compute them."""


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: object, **options: Any) -> Any:
    """`ufunc(*inputs)` by its operator; with `dtype=` on operands of that dtype. Raises NotSupportedError for `out=`,
    `where=` and other options, for methods such as `np.add.reduce`, for functions without an operator, and for a dtype
    that is not the result's or of a lower category than an operand's."""
    del self
    name = f"numpy.{ufunc.__name__}"
    if method == "__call__" and set(options) == {"out"} and not isinstance(options["out"][0], TensorLike):
        raise NotSupportedError(
            name,
            "the result is to be written into a NumPy array",
            "NumPy's operands for that",
            "use x.numpy(), or y = y + x, which gives an array of meta, in place of y += x",
        )
    dtype = options.pop("dtype", None)
    if method != "__call__" or options:
        what = f"method {method!r}" if method != "__call__" else ", ".join(f"{option}=" for option in options)
        raise NotSupportedError(
            name, f"{what} on arrays of meta", "calls without options other than dtype=", "call it on x.numpy()"
        )
    operator = OPERATORS.get(ufunc.__name__)
    if operator is None:
        raise NotSupportedError(name, "no operator of meta computes it", ", ".join(sorted(OPERATORS)),
                                "call it on x.numpy(), which leaves the gradient graph")  # fmt: skip
    function = getattr(meta, operator)
    return function(*inputs) if dtype is None else _computed_in(name, function, inputs, dtypes.canonical(dtype))


def _computed_in(name: str, function: Callable[..., Any], inputs: Sequence[Any], dtype: str) -> Any:
    """`function` on operands that are cast to `dtype`."""
    for x in inputs:
        if hasattr(x, "dtype") and dtypes.category(dtypes.canonical(x.dtype)) > dtypes.category(dtype):
            raise _unfit(name, f"an operand is {x.dtype}", dtype)
    result = function(*[meta.cast(tensor_of(x), dtype) if hasattr(x, "dtype") else x for x in inputs])
    if result.dtype != dtype:
        raise _unfit(name, f"the result is {result.dtype}", dtype)
    return result


def _unfit(name: str, what: str, dtype: str) -> NotSupportedError:
    problem = f"{what} and dtype is {dtype}"
    return NotSupportedError(name, problem, "a dtype for operands and result", "cast the result: .cast(...)")


def tensor_of(x: object) -> Any:
    """An operand of a function of NumPy as a tensor."""
    return x if isinstance(x, TensorLike) else meta.asarray(x)
