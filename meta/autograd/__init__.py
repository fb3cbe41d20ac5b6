"""Reverse-mode differentiation of eager computations: a tape, its backward walk, and what users do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

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
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.autograd.api": ("enable_grad", "is_grad_enabled", "no_grad"),
        "meta.autograd.finite_differences": ("gradcheck", "gradgradcheck"),
        "meta.autograd.function": ("Context", "Function"),
        "meta.eager.engine": ("backward", "grad"),
    })  # fmt: skip
