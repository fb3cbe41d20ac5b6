"""Errors about inputs of layers that are not tensors, and about attributes of models that would not train."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from meta.dim import product
from meta.errors import ArgumentError, TypeInferenceError, value_text
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


_calls: WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = WeakKeyDictionary()
"""The arguments that layers of this package were made with; a copy of a layer has none."""


def remember_call(layer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the arguments of a layer's constructor for `suggest_size`."""
    if type(layer).__module__.partition(".")[0] == _PACKAGE:
        _calls[layer] = args, kwargs


def suggest_size(layer: Any, size: tuple[str, int] | None, error: TypeInferenceError, args: tuple[Any, ...]) -> None:
    """Add to `error`, which the layer raised for `args`, the constructor's call that fits the input.

    size: the constructor's argument that sets the size of an axis of the input, and the axis."""
    if size is None or layer not in _calls or not args or not isinstance(args[0], TensorLike):
        return
    if "dtype" in error.expected:
        return
    name, axis = size
    shape: Any = getattr(args[0], "shape", ())
    parameters = inspect.signature(layer.build).bind(*_calls[layer][0], **_calls[layer][1])
    made_for, given = parameters.arguments.get(name), shape[axis] if -len(shape) <= axis < len(shape) else None
    if not isinstance(made_for, int) or not isinstance(given, int) or given == made_for:
        return
    parameters.arguments[name] = given
    values = [*map(value_text, parameters.args), *(f"{key}={value_text(v)}" for key, v in parameters.kwargs.items())]
    write = f"write {type(layer).__name__}({', '.join(values)})"
    if axis == -1 and product(shape[1:]) == made_for:
        write = "write x.flatten(1)"
    # What the rule says about a weight is of no use here, and an inner layer is made by the outer one.
    about_input: str = vars(error).setdefault("about_input", "" if axis == -1 else error.remedy)
    error.remedy = f"{about_input}; or {write}" if about_input else write


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


def refuse_foreign_array(model: type, name: str, value: object) -> None:
    """Raise ArgumentError for an array of NumPy or torch in place of a parameter, which would not be trained."""
    if hasattr(value, "__dlpack__") and not isinstance(value, TensorLike):
        problem = f"'{name}' is set to {type(value).__module__.partition('.')[0]}'s {type(value).__name__}"
        remedy = f"write model.{name} = meta.array(value, requires_grad=True)"
        raise ArgumentError(model.__name__, f"{problem}, which would not be trained", "an array of meta", remedy)
