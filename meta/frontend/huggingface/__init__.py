"""Folders of Hugging Face, config.json and safetensors files, as language models (`load`, `examine`), and models as
such folders (`save`)."""

from __future__ import annotations

from meta.frontend.examination import Examination, OperatorUse
from meta.frontend.huggingface.api import UnsupportedError, examine, load, save

__all__ = ["Examination", "OperatorUse", "UnsupportedError", "examine", "load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
