"""Errors about inputs of layers that are not tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from meta.errors import ArgumentError, value_text
from meta.schema._dsl import TensorLike

_PACKAGE = __name__.partition(".")[0]


def refuse_input(
    layer: type, forward: Callable[..., Any], error: AttributeError, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise ArgumentError if `error` tells of an attribute that an argument lacks, in a layer of this package, whose
    arguments are tensors. What models of others take, only their authors know.

    layer: the class of the model.  forward: its function, which was called with the arguments."""
    if layer.__module__.partition(".")[0] != _PACKAGE:
        return
    try:
        arguments = inspect.signature(forward).bind(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in arguments.items():
        if value is error.obj and not isinstance(value, TensorLike):
            raise ArgumentError(
                layer.__name__,
                f"'{name}' is {value_text(value)}, a {type(value).__name__}",
                "a tensor",
                "make one: meta.array(...)",
            ) from None
