"""Gradient modes: `no_grad`, `enable_grad`, `is_grad_enabled`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from meta.modes import GradMode, modes

F = TypeVar("F", bound=Callable[..., Any])


@overload
def no_grad() -> GradMode: ...
@overload
def no_grad(function: F) -> F: ...
def no_grad(function: Any = None) -> Any:
    """Record no gradients: `with no_grad():`, or as a decorator, in this thread."""
    return GradMode(False) if function is None else GradMode(False)(function)


@overload
def enable_grad() -> GradMode: ...
@overload
def enable_grad(function: F) -> F: ...
def enable_grad(function: Any = None) -> Any:
    """Record gradients again inside of `no_grad`: `with enable_grad():`, or as a decorator, in this thread."""
    return GradMode(True) if function is None else GradMode(True)(function)


def is_grad_enabled() -> bool:
    """Whether calls in this thread are recorded."""
    return modes.grad_enabled
