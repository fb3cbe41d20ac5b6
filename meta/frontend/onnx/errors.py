"""Errors of reading, converting and running ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meta.errors import MetaError, NotSupportedError
from meta.frontend.examination import problem_lines

GUIDE = "docs/from-onnx.md lists the supported ones"
"""The remedy for operators and values that are not supported."""


class OnnxError(MetaError, ValueError):
    """An ONNX model, or a value given to it, that cannot be read, converted or run."""


class UnsupportedError(OnnxError, NotSupportedError):
    """A model that can be read but not converted.

    operators: the operators that are not supported, with the number of their nodes.
    problems: what else cannot be converted, each with its place."""

    def __init__(
        self, *parts: str, remedy: str = "", operators: Mapping[str, int] | None = None, problems: Sequence[str] = ()
    ) -> None:
        super().__init__(*parts, remedy=remedy, details=problem_lines(problems))
        self.operators: Mapping[str, int] = operators or {}
        self.problems = tuple(problems) if problems or self.operators else (self.summary.removeprefix("[onnx] "),)


class UndecidedError(UnsupportedError):
    """A shape, an axis or a choice that depends on values known only at run time: the model runs node by node."""
