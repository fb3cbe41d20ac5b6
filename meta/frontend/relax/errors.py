"""Errors of reading and converting Relax programs."""

from __future__ import annotations

from meta.errors import MetaError
from meta.frontend.examination import UnsupportedProgramError


class RelaxError(MetaError, ValueError):
    """A Relax program, or its parameters, that cannot be converted."""


class UnsupportedError(RelaxError, UnsupportedProgramError):
    """A program with something that meta lacks."""
