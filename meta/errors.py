"""Every error meta raises on purpose, and the one place that words them.

An error has four parts, rendered as `[softmax] what was wrong with the actual values; expected what is allowed; what to
do (at file:line of the caller's code)`.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

E = TypeVar("E", bound="MetaError")

# Frames that are not the user's: this package, code without a file, and what `with`, decorators and copies run through.
_NOT_USER = (str(Path(__file__).parent) + os.sep, "<", contextlib.__file__, copy.__file__, functools.__file__)


class MetaError(Exception):
    """Base of every error of this package.

    subject: the operator or the part of the package that reports it; "" until `attribute` names it.
    problem: what is wrong, with the actual values.  expected: what is allowed, a phrase that follows "expected".
    remedy: what to do.  location: `file:line` of the caller's code, found when the error is made; "" if unknown.
    details: further lines below the text: an excerpt of the source, or other errors found on the way.
    """

    def __init__(
        self,
        subject: str,
        problem: str,
        expected: str = "",
        remedy: str = "",
        *,
        location: str | None = None,
        details: str = "",
    ) -> None:
        super().__init__(subject, problem, expected, remedy)
        self.subject = subject
        self.problem = problem
        self.expected = expected
        self.remedy = remedy
        self.location = user_frame() if location is None else location
        self.details = details

    def attribute(self, subject: str) -> None:
        """Name the subject of an error raised by a rule that operators share."""
        self.subject = self.subject or subject

    @property
    def summary(self) -> str:
        """The first three parts, for an error that is raised again about another place."""
        expected = f"expected {self.expected}" if self.expected else ""
        text = "; ".join(part for part in (self.problem, expected, self.remedy) if part)
        return f"[{self.subject}] {text}" if self.subject else text

    def __str__(self) -> str:
        location = f" (at {self.location})" if self.location else ""
        return self.summary + location + (f"\n{self.details}" if self.details else "")


class ArgumentError(MetaError, TypeError):
    """An argument has the wrong kind: a string where an int belongs, an unknown name, a missing one."""


class TypeInferenceError(MetaError, ValueError):
    """Arguments of the right kind whose shapes, dtypes or values do not fit together."""


class PositionError(MetaError, IndexError):
    """An index that is no index, or that lies outside of a tensor."""


class DeviceError(MetaError, ValueError):
    """A device that does not exist here, or operands on different ones."""


class DispatchError(MetaError, RuntimeError):
    """No dialect accepts a call."""


class KernelError(MetaError, RuntimeError):
    """A library that runs a kernel reports an error."""


class GradientError(MetaError, RuntimeError):
    """A gradient that does not exist or cannot be computed now."""


class RegistryError(MetaError, LookupError):
    """An operator, schema or dialect name that is not (or already) registered."""


class IRError(MetaError, ValueError):
    """IR text that does not parse, or IR that is not well-formed."""


class TraceError(MetaError, RuntimeError):
    """A Python function that cannot be recorded as IR."""


class NotSupportedError(MetaError, NotImplementedError):
    """Something recognised that this version cannot do yet."""


def user_location() -> tuple[str, int] | None:
    """File and line of the innermost frame outside this package, None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_NOT_USER):
            return filename, frame.f_lineno
        frame = frame.f_back
    return None


def user_frame() -> str:
    """`file:line` of the innermost frame outside this package, "" if there is none."""
    at = user_location()
    return f"{at[0]}:{at[1]}" if at else ""


@contextlib.contextmanager
def attributed(subject: str) -> Generator[None, None, None]:
    """Name the subject of errors that a block raises through rules that operators share."""
    try:
        yield
    except MetaError as error:
        error.attribute(subject)
        raise


def combined(errors: Sequence[E]) -> E:
    """The first of several errors, with the distinct texts of the others on lines of their own."""
    first, *others = errors
    first.details = "\n".join(text for text in dict.fromkeys(map(str, others)) if text != str(first))
    return first


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """`did you mean 'softmax'?` for a misspelt `name`, "" when nothing in `known` is close."""
    close = difflib.get_close_matches(name, list(known), n=limit, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
