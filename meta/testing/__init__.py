"""Helpers for testing operators and models. Those that need torch import it when they are called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.autograd.finite_differences import gradcheck as gradcheck
    from meta.autograd.finite_differences import gradgradcheck as gradgradcheck
    from meta.op.dispatch import with_dialect as with_dialect
    from meta.testing.arrays import check as check
    from meta.testing.arrays import get_testable_devices as get_testable_devices
    from meta.testing.arrays import randn_torch as randn_torch
    from meta.testing.arrays import with_seed as with_seed
    from meta.testing.models import run_model as run_model
    from meta.testing.models import run_vm_model as run_vm_model
    from meta.testing.operators import OpCheckError as OpCheckError
    from meta.testing.operators import opcheck as opcheck
    from meta.testing.samples import ErrorCase as ErrorCase
    from meta.testing.samples import Sample as Sample
    from meta.testing.samples import T as T

_HOMES = {
    "ErrorCase": "meta.testing.samples",
    "Sample": "meta.testing.samples",
    "OpCheckError": "meta.testing.operators",
    "T": "meta.testing.samples",
    "check": "meta.testing.arrays",
    "get_testable_devices": "meta.testing.arrays",
    "gradcheck": "meta.autograd.finite_differences",
    "gradgradcheck": "meta.autograd.finite_differences",
    "opcheck": "meta.testing.operators",
    "randn_torch": "meta.testing.arrays",
    "run_model": "meta.testing.models",
    "run_vm_model": "meta.testing.models",
    "with_dialect": "meta.op.dispatch",
    "with_seed": "meta.testing.arrays",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meta.testing' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
