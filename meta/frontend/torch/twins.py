"""Custom operators of PyTorch that have a twin in meta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from meta.errors import ArgumentError, RegistryError

F = TypeVar("F", bound=Callable[..., Any])

_twins: dict[str, Callable[..., Any]] = {}


@overload
def twin(name: str, function: F) -> F: ...
@overload
def twin(name: str) -> Callable[[F], F]: ...
def twin(name: str, function: Callable[..., Any] | None = None) -> Any:
    """Have meta run a function of meta where a PyTorch program calls a custom operator.

        meta.frontend.torch.twin("mylib::swiglu", meta.ops.mylib.swiglu)

        @meta.frontend.torch.twin("mylib::swiglu_backward")
        def swiglu_backward(dy, x): ...

    name: "namespace::operator", for all of its overloads, or "namespace::operator.overload" for one of them.
    function: called with the operator's arguments: tensors are meta's, everything else is as in torch. It returns the
        operator's results: a tensor, or a tuple of them. It replaces an earlier twin.
    Without a twin, `torch.compile` calls the operator's own kernel. Returns the function; without one, a decorator.
    Raises ArgumentError for a name without a namespace and for something that cannot be called, RegistryError for
    operators of PyTorch itself, which the table `meta.frontend.torch.aten` has."""
    text: Any = name
    namespace, separator, operator = text.partition("::") if isinstance(text, str) else ("", "", "")
    if not separator or not namespace.isidentifier() or not all(map(str.isidentifier, operator.split("."))):
        expected = '"namespace::operator", or "namespace::operator.overload"'
        raise ArgumentError("twin", f"the operator is {text!r:.80}", expected)
    if namespace in ("aten", "prims"):
        raise RegistryError("twin", f"'{name}' is an operator of PyTorch", "operators of other namespaces")
    if function is None:
        return lambda function: twin(name, function)
    if not callable(function):
        raise ArgumentError("twin", f"the twin of '{name}' is {function!r:.80}", "a function of meta's tensors")
    _twins[name] = function
    return function


def find_twin(name: str, overload: str = "") -> Callable[..., Any] | None:
    """The twin of an operator, None without one; those that users register come first. overload: such as "default"."""
    from meta.frontend.torch.library_twins import LIBRARY_TWINS

    return _twins.get(f"{name}.{overload}") or _twins.get(name) or LIBRARY_TWINS.get(name)
