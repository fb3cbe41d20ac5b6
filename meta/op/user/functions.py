"""The public function and the method of a user's operator, compiled from the text of meta.op.codegen.

The text holds the names of the operator and its arguments, which are identifiers, and nothing else of the user's:
defaults, annotations and documentation are set on the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim
from meta.errors import RegistryError
from meta.op import registry
from meta.op.codegen import functions, methods
from meta.op.codegen.signature import annotation, default_value, doc_lines, tensor_args
from meta.op.registry import Op, split
from meta.op.user import namespaces

_ANNOTATED = {"T": meta.NDArray, "NDArray": meta.NDArray, "Sequence": Sequence, "Any": Any, "Literal": Literal,
              "Dim": Dim, "DeviceLike": meta.Device | str, "DTypeLike": Any}  # fmt: skip
"""The names in the annotations of argument types."""


def check_names(op: Op, before: Op | None) -> None:
    """Raise RegistryError for an argument or a method that cannot have its name. before: the operator replaced."""
    for name in op.schema.names:
        if name.startswith("_"):
            problem = f"argument '{name}' begins with an underscore, as names in generated functions do"
            raise RegistryError(op.name, problem, "another name")
    if op.method and (not op.schema.args or op.schema.args[0].type.role != "tensor"):
        raise RegistryError(op.name, f"method=True, but {op.schema!r} takes no tensor first", "a Tensor first")
    if op.method and "self" in op.schema.names:
        raise RegistryError(op.name, "method=True, but an argument is called 'self'", "another name")
    old = method_names(before) if before is not None else ()
    for name in method_names(op):
        if hasattr(meta.NDArray, name) and name not in old:
            raise RegistryError(op.name, f"arrays have an attribute '{name}' already", "a new name, or method=False")


def public_function(op: Op, module: str, differentiable: Sequence[int]) -> Callable[..., Any]:
    """The function that calls the operator. module: the name of the module that it is defined in.
    differentiable: the positions of the arguments with a gradient."""
    namespace: dict[str, Any] = {**_ANNOTATED, "_op": op}
    if op.recorded_as:
        recorded = registry.get(op.recorded_as)
        namespace[f"_{recorded.basename}"] = function_of(recorded)
    function = _compiled(functions.bare_function(op, differentiable), op, namespace)
    function.op_name = op.name
    _describe(function, op, module, 0)
    return function


def add_method(op: Op, function: Callable[..., Any], module: str) -> None:
    """Make the operator a method of arrays and symbols."""
    method = _compiled(methods.bare_method(op), op, {**_ANNOTATED, "_function": function})
    _describe(method, op, module, 1)
    for name in method_names(op):
        setattr(Tensor, name, method)


def method_names(op: Op) -> tuple[str, ...]:
    """The names of the methods of an operator."""
    return tuple(split(name)[1] for name in op.names) if op.method else ()


def publish(op: Op, function: Callable[..., Any]) -> None:
    """Put the function of an operator into meta, or into the namespace of its package."""
    for namespace, name in map(split, op.names):
        if namespace:
            namespaces.add(namespace, name, function)
        else:
            setattr(meta, name, function)


def withdraw(op: Op) -> None:
    """Remove the function and the methods of an operator. The function raises RegistryError where it is still held."""

    def declare(*_: object) -> NoReturn:
        raise RegistryError(op.name, "the operator was unregistered", "a registered operator", "define it again")

    function_of(op).__globals__[f"_s_{op.basename}"].op = replace(op, declare=declare)
    for namespace, name in map(split, op.names):
        if namespace:
            namespaces.remove(namespace, name)
        else:
            delattr(meta, name)
    for name in method_names(op):
        delattr(Tensor, name)


def function_of(op: Op) -> Callable[..., Any]:
    """The public function of an operator."""
    return getattr(namespaces.find(op.namespace) if op.namespace else meta, op.basename)


def _compiled(text: str, op: Op, namespace: dict[str, Any]) -> Any:
    exec(compile(text, f"<operator {op.name}>", "exec"), namespace)
    return namespace[op.basename]


def _describe(function: Any, op: Op, module: str, skip: int) -> None:
    """Set defaults, annotations and documentation; the first `skip` arguments are left out."""
    args = op.schema.args[skip:]
    tensor = "T" if tensor_args(op) else "NDArray"
    function.__module__ = module
    function.__defaults__ = tuple(default_value(arg) for arg in args if not arg.required)
    function.__annotations__ = {arg.name: annotation(arg, tensor) for arg in args}
    function.__annotations__["return"] = functions.result_type(op, tensor)
    function.__doc__ = "\n".join(doc_lines(op, skip=skip))
