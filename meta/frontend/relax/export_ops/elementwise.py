"""Elementwise operators. Those that treat NaN in another way than Relax (`maximum`, `relu`, `clip`) are not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta import dtype as dtypes
from meta.frontend.relax.export_ops._table import RelaxSite, row, rows

_UNARY: Final = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "log",
    "negative", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
_COMPARISONS: Final = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
_ARITHMETIC: Final = ("add", "multiply", "subtract")


def _unary(name: str) -> Callable[..., Any]:
    return lambda call, x: getattr(call.op, name)(x) if call.is_wide else None


def _binary(name: str, accepts: Callable[[RelaxSite], bool]) -> Callable[..., Any]:
    def convert(call: RelaxSite, x1: Any, x2: Any) -> Any:
        kinds = {t.dtype for t in call.types}
        if len(kinds) != 1 or not accepts(call):
            return None
        (dtype,) = kinds
        if not _fits(x1, dtype) or not _fits(x2, dtype):
            return None
        return getattr(call.op, name)(call.number(x1, dtype), call.number(x2, dtype))

    return convert


def _fits(operand: Any, dtype: str) -> bool:
    """Whether an operand is a tensor, or a number that `dtype` holds."""
    if isinstance(operand, bool):
        return dtype == "bool"
    if isinstance(operand, int):
        return dtypes.is_float(dtype) or dtype in ("int32", "int64")
    return not isinstance(operand, float) or dtypes.is_float(dtype)


def _is_arithmetic(call: RelaxSite) -> bool:
    return call.is_uniform and call.dtype in ("float32", "float64", "int32", "int64")


def _compares(call: RelaxSite) -> bool:
    return call.types[0].dtype in ("float32", "float64", "int32", "int64")


rows({name: _unary(name) for name in _UNARY})
rows({name: _binary(name, _is_arithmetic) for name in _ARITHMETIC})
rows({name: _binary(name, _compares) for name in _COMPARISONS})
rows({"divide": _binary("divide", lambda call: call.is_wide)})


@row("where")
def where(call: RelaxSite, condition: Any, x: Any, y: Any) -> Any:
    flag, *branches = call.types
    if flag.dtype != "bool" or any(t.dtype != call.dtype for t in branches):
        return None
    if not _fits(x, call.dtype) or not _fits(y, call.dtype):
        return None
    return call.op.where(condition, call.number(x, call.dtype), call.number(y, call.dtype))


@row("cast")
def cast(call: RelaxSite, x: Any, dtype: str) -> Any:
    kinds = ("float32", "float64", "float16", "int32", "int64", "bool")
    source = call.types[0].dtype
    exact = dtypes.is_float(dtype) or not dtypes.is_float(source)
    return call.op.astype(x, dtype) if source in kinds and dtype in kinds and exact and dtype != "bool" else None


rows({
    "leaky_relu": lambda call, x, alpha: call.op.nn.leakyrelu(x, alpha) if call.is_wide else None,
    "silu": lambda call, x: call.op.nn.silu(x) if call.is_wide else None,
})  # fmt: skip


@row("gelu")
def gelu(call: RelaxSite, x: Any, approximate: str) -> Any:
    if not call.is_wide:
        return None
    return call.op.nn.gelu_tanh(x) if approximate == "tanh" else call.op.nn.gelu(x)
