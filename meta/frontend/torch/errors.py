"""Errors of reading and converting PyTorch programs."""

from __future__ import annotations

from meta.errors import MetaError, PositionError
from meta.frontend.examination import UnsupportedProgramError


class TorchProgramError(MetaError, ValueError):
    """A PyTorch program that cannot be read or converted."""


class UnsupportedError(TorchProgramError, UnsupportedProgramError):
    """A PyTorch program that can be read but not converted."""


class IndexRangeError(PositionError, RuntimeError):
    """An index out of range in a compiled graph; torch raises an IndexError or a RuntimeError, by operator."""
