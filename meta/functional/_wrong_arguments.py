"""Errors about the arguments of a composed function that failed with an error of Python."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.op.rules import show
from meta.schema.annotations import check_signature
from meta.tree import is_sequence

_TENSOR = re.compile(r"\b(Any|T|Tensor)\b( \| Number)?( \| None)?")
"""Annotations of tensors."""
_PACKAGE = str(Path(meta.__file__).parent) + os.sep


def argument_error(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> ArgumentError | None:
    """The error that names the argument of the wrong kind, or else all tensors; None for an error of a user's function.
    Raises ArgumentError for arguments that do not fit the signature."""
    frames = traceback.extract_tb(error.__traceback__)
    name = function.__name__
    if isinstance(error, TypeError):
        check_signature(name, function, args, kwargs)
    if len(frames) < 2 or not frames[-1].filename.startswith(_PACKAGE):
        return None
    signature = inspect.signature(function)
    arguments = signature.bind(*args, **kwargs).arguments
    detail = f"{type(error).__name__}: {error}"
    for label, value in arguments.items():
        parameter = signature.parameters[label]
        expected = _expected(parameter, value)
        if expected:
            return ArgumentError(name, f"argument '{label}' is {_described(value)} ({detail})", expected)
    listed = ", ".join(f"'{label}' is {_described(value)}" for label, value in arguments.items())
    return ArgumentError(name, f"{listed} ({detail})", "arguments as its documentation says", f"read help(meta.{name})")


def _expected(parameter: inspect.Parameter, value: object) -> str:
    """The kind that a parameter without a default has if `value` is of none that it may have; "" otherwise."""
    if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
        return ""
    annotation = _TENSOR.sub("tensor", str(parameter.annotation))
    if annotation == "str":
        return "" if isinstance(value, str) else "a str"
    is_of_no_use = value is None or isinstance(value, (str, bytes, dict)) or type(value) is object
    kind = "a tensor" if annotation == "tensor" else annotation
    return kind if is_of_no_use else ""


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {show(value.shape)}"
    if is_sequence(value):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{value!r:.40}" if isinstance(value, (bool, int, float, str)) or value is None else type(value).__name__
