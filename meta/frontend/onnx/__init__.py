"""ONNX models as meta programs (`from_onnx`, `load`, `examine`), and programs as ONNX models (`to_onnx`)."""

from __future__ import annotations

from meta.frontend.examination import Examination, OperatorUse
from meta.frontend.onnx.api import examine, from_onnx, load
from meta.frontend.onnx.errors import OnnxError, UndecidedError, UnsupportedError
from meta.frontend.onnx.export import to_onnx
from meta.frontend.onnx.model import OnnxModel
from meta.frontend.onnx.program import OnnxProgram

__all__ = [
    "Examination", "OnnxError", "OnnxModel", "OnnxProgram", "OperatorUse", "UndecidedError", "UnsupportedError",
    "examine", "from_onnx", "load", "to_onnx",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
