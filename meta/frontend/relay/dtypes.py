"""Relay's names of dtypes."""

from __future__ import annotations

import functools
import re
from typing import Any, cast

from meta.frontend.relay import ast

NUMPY_DTYPES = {
    "bool": "bool",
    "uint1": "bool",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "bfloat16": "<u2",
    **{f"int{width}": f"<i{width // 8}" for width in (8, 16, 32, 64)},
    **{f"uint{width}": f"<u{width // 8}" for width in (8, 16, 32, 64)},
}
"""NumPy's little-endian types by Relay's names; bfloat16 is kept as 16-bit words."""

_DTYPE = re.compile(
    r"(?:bool|handle|void|(?:int|uint|float|bfloat)\d{1,3}(?:x\d{1,5})?|float8_\w+|custom\[\w+\]\d+(?:x\d+)?)"
)


@functools.lru_cache(maxsize=1024)
def is_dtype(name: str) -> bool:
    """Whether `name` is a dtype of Relay, which includes some that no array here can have."""
    return _DTYPE.fullmatch(name) is not None


def plain_attribute(value: object) -> Any:
    """`value` as an attribute, at every level: functions by name; other expressions and types become `ast.Opaque`.

    An expression that is not constant is also an argument of the call."""
    if value is None or isinstance(value, (bool, int, float, str, ast.Constant, ast.Opaque)):
        return value
    if isinstance(value, tuple):
        return tuple(plain_attribute(each) for each in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        return {name: plain_attribute(each) for name, each in cast("dict[str, Any]", value).items()}
    return value.name if isinstance(value, ast.GlobalVar) else ast.Opaque(type(value).__name__)


def none_if_empty(value: object) -> Any:
    """`value`, but None for the strings by which Relay writes an attribute that is not set."""
    return None if isinstance(value, str) and value in ("", "None") else value
