"""Errors about inputs of layers that are not tensors, and about attributes of models that would not train."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from meta.errors import ArgumentError, value_text
from meta.schema._dsl import TensorLike
from meta.schema.annotations import check_signature
from meta.tree import named_leaves

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


def refuse_call(layer: type, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ArgumentError for missing, surplus and unknown arguments of a model; see `refuse_input`."""
    check_signature(layer.__name__, forward, args, kwargs)


_WIDEST = 1000
"""Items of the largest list or dict that is searched for modules of torch; larger ones are data."""


def refuse_torch(model: type, name: str, value: object) -> None:
    """Raise ArgumentError for a module or parameter of torch, also in a list or dict, as the attribute of a model."""
    nn: Any = sys.modules.get("torch.nn")
    if nn is None:
        return
    plain = (bool, int, float, str, type(None), TensorLike)
    if isinstance(value, plain):
        return
    for path, leaf in named_leaves(value, name=name, widest=_WIDEST):
        if isinstance(leaf, (nn.Module, nn.Parameter)):
            raise ArgumentError(
                model.__name__,
                f"'{path}' is torch's {type(leaf).__name__}, which this model would neither train nor save",
                "layers and arrays of meta",
                "convert it: meta.frontend.torch.from_exported(torch.export.export(module, args)); or build the "
                "layers of meta.nn and call load_torch_state_dict; a parameter: meta.array(parameter.detach())",
            )
