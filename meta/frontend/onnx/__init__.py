"""ONNX models as meta programs: `from_onnx` to run one, `load` to train one, `examine` to look first."""

from __future__ import annotations

from meta.frontend.examination import Examination, OperatorUse
from meta.frontend.onnx.api import examine, from_onnx, load
from meta.frontend.onnx.errors import OnnxError, UndecidedError, UnsupportedError
from meta.frontend.onnx.model import OnnxModel
from meta.frontend.onnx.program import OnnxProgram

__all__ = [
    "Examination", "OnnxError", "OnnxModel", "OnnxProgram", "OperatorUse", "UndecidedError", "UnsupportedError",
    "examine", "from_onnx", "load",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
