"""Errors of reading and converting Relax programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meta.errors import MetaError, NotSupportedError
from meta.frontend.examination import problem_lines


class RelaxError(MetaError, ValueError):
    """A Relax program, or its parameters, that cannot be converted."""


class UnsupportedError(RelaxError, NotSupportedError):
    """A program with something that meta lacks.

    operators: the operators and functions without a converter, with the number of their calls.
    problems: what else cannot be converted, each with its binding."""

    def __init__(
        self, *parts: str, remedy: str = "", operators: Mapping[str, int] | None = None, problems: Sequence[str] = (),
        location: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(*parts, remedy=remedy, details=problem_lines(problems), location=location)
        self.operators: Mapping[str, int] = operators or {}
        self.problems = tuple(problems) if problems or self.operators else (self.summary.removeprefix("[relax] "),)
