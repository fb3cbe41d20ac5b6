"""Helpers for testing operators and models. Those that need torch import it when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.autograd.finite_differences import gradcheck as gradcheck
    from meta.autograd.finite_differences import gradgradcheck as gradgradcheck
    from meta.op.dispatch import with_dialect as with_dialect
    from meta.testing.arrays import check as check
    from meta.testing.arrays import get_testable_devices as get_testable_devices
    from meta.testing.arrays import randn_torch as randn_torch
    from meta.testing.arrays import with_seed as with_seed
    from meta.testing.operators import opcheck as opcheck
    from meta.testing.programs import run_model as run_model
    from meta.testing.programs import run_vm_model as run_vm_model
    from meta.testing.report import Finding as Finding
    from meta.testing.report import OpCheckError as OpCheckError
    from meta.testing.report import OpCheckReport as OpCheckReport
    from meta.testing.samples import ErrorCase as ErrorCase
    from meta.testing.samples import Sample as Sample
    from meta.testing.samples import T as T
    from meta.testing.torch_operators import torch_opcheck as torch_opcheck
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.autograd.finite_differences": ("gradcheck", "gradgradcheck"),
        "meta.op.dispatch": ("with_dialect",),
        "meta.testing.arrays": ("check", "get_testable_devices", "randn_torch", "with_seed"),
        "meta.testing.programs": ("run_model", "run_vm_model"),
        "meta.testing.operators": ("opcheck",),
        "meta.testing.report": ("Finding", "OpCheckError", "OpCheckReport"),
        "meta.testing.samples": ("ErrorCase", "Sample", "T"),
        "meta.testing.torch_operators": ("torch_opcheck",),
    })  # fmt: skip
