"""Values of attributes, as both readers produce them."""

from __future__ import annotations

from typing import Any, cast

from meta.frontend.relay import ast


def plain_attribute(value: Any) -> Any:
    """`value` as an attribute, at every level: functions by name; other expressions and types become `ast.Opaque`.

    An expression that is not constant is also an argument of the call."""
    if value is None or isinstance(value, (bool, int, float, str, ast.Constant, ast.Opaque)):
        return value
    if isinstance(value, tuple):
        return tuple(plain_attribute(each) for each in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        return {name: plain_attribute(each) for name, each in cast("dict[str, Any]", value).items()}
    return value.name if isinstance(value, ast.GlobalVar) else ast.Opaque(type(value).__name__)


def none_if_empty(value: Any) -> Any:
    """`value`, but None for the strings by which Relay writes an attribute that is not set."""
    return None if isinstance(value, str) and value in ("", "None") else value
