"""Readers and writers of models of other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import submodules

if TYPE_CHECKING:
    from meta.frontend import huggingface as huggingface
    from meta.frontend import onnx as onnx
    from meta.frontend import relax as relax
    from meta.frontend import relay as relay
else:
    __getattr__, __dir__ = submodules(__name__)
