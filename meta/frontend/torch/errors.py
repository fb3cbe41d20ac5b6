"""Errors of reading and converting PyTorch programs."""

from __future__ import annotations

from collections.abc import Mapping

from meta.errors import MetaError, NotSupportedError, PositionError


class TorchProgramError(MetaError, ValueError):
    """A PyTorch program that cannot be read or converted."""


class UnsupportedError(TorchProgramError, NotSupportedError):
    """A PyTorch program that can be read but not converted.

    operators: the operators that meta lacks, with the number of their calls; empty for other reasons."""

    def __init__(self, *parts: str, operators: Mapping[str, int] | None = None, **fields: str | None) -> None:
        super().__init__(*parts, **fields)
        self.operators: Mapping[str, int] = operators or {}


class IndexRangeError(PositionError, RuntimeError):
    """An index out of range in a compiled graph; torch raises an IndexError or a RuntimeError, by operator."""
