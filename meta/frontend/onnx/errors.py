"""Errors of reading, converting and running ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meta.errors import MetaError, NotSupportedError


class OnnxError(MetaError, ValueError):
    """An ONNX model, or a value given to it, that cannot be read, converted or run."""


class UnsupportedError(OnnxError, NotSupportedError):
    """A model that can be read but not converted.

    operators: the operators without a row, with the names of their nodes; empty for other reasons."""

    def __init__(self, *parts: str, remedy: str = "", operators: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(*parts, remedy=remedy)
        self.operators: Mapping[str, Sequence[str]] = operators or {}


class UndecidedError(UnsupportedError):
    """A shape, an axis or a choice that depends on values known only at run time: the model runs node by node."""
