"""The namespace of the Python array API standard, version 2023.12, and the functions of 2024.12 that have operators:
`xp = x.__array_namespace__()`.

Where the standard's signature matches an operator's, the operator is the function. docs/array-api.md lists what is
missing, and where results differ from the standard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import meta
from meta import dtype as dtypes

__array_api_version__ = "2023.12"

VERSIONS = ("2021.12", "2022.12", "2023.12")
"""Versions of the standard that `x.__array_namespace__(api_version=...)` accepts."""

OPERATORS: Mapping[str, str] = {
    "bitwise_invert": "bitwise_not", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "broadcast_arrays": "broadcast_tensors", "permute_dims": "transpose", "positive": "copy", "pow": "power",
    "remainder": "mod",
} | {
    name: name
    for name in (
        "abs", "acos", "acosh", "add", "all", "any", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh",
        "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "ceil", "conj", "copysign", "cos", "cosh",
        "count_nonzero", "diff", "divide", "equal", "exp", "expand_dims", "expm1", "flip", "floor", "floor_divide",
        "greater", "greater_equal", "hypot", "imag", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "log",
        "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "max",
        "maximum", "mean", "min", "minimum", "moveaxis", "multiply", "negative", "nextafter", "not_equal", "real",
        "reciprocal", "searchsorted", "signbit", "sin", "sinh", "sqrt", "square", "squeeze", "subtract", "tan", "tanh",
        "tile", "tril", "triu", "trunc", "where",
    )
}  # fmt: skip
"""Functions of the standard and the operators that are called in the same way."""

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "creation": (
        "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
        "ones", "ones_like", "zeros", "zeros_like",
    ),
    "data_types": ("__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"),
    "elementwise": ("clip", "round", "sign"),
    "products": ("matmul", "matrix_transpose", "tensordot", "vecdot"),
    "manipulation": (
        "broadcast_shapes", "concat", "repeat", "reshape", "roll", "stack", "take", "take_along_axis", "unstack",
    ),
    "reductions": ("cumulative_prod", "cumulative_sum", "prod", "std", "sum", "var"),
    "search": ("argsort", "nonzero", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
}  # fmt: skip
"""Functions of the other names, by the file that has them."""

CONSTANTS: Mapping[str, Any] = {"e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None, "pi": math.pi}

MISSING: Mapping[str, str] = {
    name: f"the functions of meta.{name} have torch's names and arguments" for name in ("fft", "linalg")
}
"""Names of the standard that the namespace lacks, and why."""

_files = {name: file for file, names in FUNCTIONS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in OPERATORS:
        return getattr(meta, OPERATORS[name])
    if name in _files:
        return getattr(import_module(f"meta.array_api.{_files[name]}"), name)
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in dtypes.ALL:
        return name
    reason = f": {MISSING[name]}" if name in MISSING else ""
    raise AttributeError(f"module 'meta.array_api' has no attribute {name!r}{reason}")


def __dir__() -> list[str]:
    return sorted((*OPERATORS, *_files, *CONSTANTS, *dtypes.ALL, "__array_api_version__"))
