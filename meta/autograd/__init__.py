"""Derivatives: the tape and its backward walk, and transformations of functions (`jvp`, `vjp`, `jacobian`, `hessian`,
`hvp`, `vmap`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.autograd.batch import vmap as vmap
    from meta.autograd.finite_differences import gradcheck as gradcheck
    from meta.autograd.finite_differences import gradgradcheck as gradgradcheck
    from meta.autograd.function import Context as Context
    from meta.autograd.function import Function as Function
    from meta.autograd.transforms import hessian as hessian
    from meta.autograd.transforms import hvp as hvp
    from meta.autograd.transforms import jacobian as jacobian
    from meta.autograd.transforms import jvp as jvp
    from meta.autograd.transforms import vjp as vjp
    from meta.eager.engine import backward as backward
    from meta.eager.engine import grad as grad
    from meta.modes import enable_grad as enable_grad
    from meta.modes import is_grad_enabled as is_grad_enabled
    from meta.modes import no_grad as no_grad
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.modes": ("enable_grad", "is_grad_enabled", "no_grad"),
        "meta.autograd.batch": ("vmap",),
        "meta.autograd.finite_differences": ("gradcheck", "gradgradcheck"),
        "meta.autograd.function": ("Context", "Function"),
        "meta.autograd.transforms": ("hessian", "hvp", "jacobian", "jvp", "vjp"),
        "meta.eager.engine": ("backward", "grad"),
    })  # fmt: skip
