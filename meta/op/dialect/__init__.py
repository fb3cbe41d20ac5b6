"""Backends: one package a dialect, one module a family of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.op.dialect import cudnn as cudnn
    from meta.op.dialect import reference as reference
    from meta.op.dialect import torch as torch
    from meta.op.dialect import tvm as tvm
else:
    __getattr__, __dir__ = submodules(__name__)
