"""Errors of reading, converting and running ONNX models."""

from __future__ import annotations

from meta.errors import MetaError
from meta.frontend.examination import UnsupportedProgramError

GUIDE = "docs/from-onnx.md lists the supported ones"
"""The remedy for operators and values that are not supported."""


class OnnxError(MetaError, ValueError):
    """An ONNX model, or a value given to it, that cannot be read, converted or run."""


class UnsupportedError(OnnxError, UnsupportedProgramError):
    """A model that can be read but not converted."""


class UndecidedError(UnsupportedError):
    """A shape, an axis or a choice that depends on values known only at run time: the model runs node by node."""
