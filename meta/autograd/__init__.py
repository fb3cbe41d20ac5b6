"""Reverse-mode differentiation of eager computations: a tape, its backward walk, and what users do with it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.autograd.api import enable_grad as enable_grad
    from meta.autograd.api import is_grad_enabled as is_grad_enabled
    from meta.autograd.api import no_grad as no_grad
    from meta.autograd.finite_differences import gradcheck as gradcheck
    from meta.autograd.finite_differences import gradgradcheck as gradgradcheck
    from meta.autograd.function import Context as Context
    from meta.autograd.function import Function as Function
    from meta.eager.engine import backward as backward
    from meta.eager.engine import grad as grad

_HOMES = {
    "Context": "meta.autograd.function",
    "Function": "meta.autograd.function",
    "backward": "meta.eager.engine",
    "enable_grad": "meta.autograd.api",
    "grad": "meta.eager.engine",
    "gradcheck": "meta.autograd.finite_differences",
    "gradgradcheck": "meta.autograd.finite_differences",
    "is_grad_enabled": "meta.autograd.api",
    "no_grad": "meta.autograd.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meta.autograd' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
