"""The error classes of meta and the rendering of their messages.

An error has four parts, rendered as `[subject] problem; expected EXPECTED; remedy (at file:line of the user's code)`.
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

# Frames to skip: this package, code without a file, and the modules of `with`, decorators and copies.
_NOT_USER = (str(Path(__file__).parent) + os.sep, "<", contextlib.__file__, copy.__file__, functools.__file__)


class MetaError(Exception):
    """Base of every error of this package.

    subject: the operator or the part of the package that raises it; "" until `attribute` names it.
    problem: the mistake, with the actual values.  expected: the allowed values, a noun phrase after "expected".
    remedy: the fix, as an imperative.  location: `file:line` of the user's code at construction; "" if unknown.
    details: further lines below the message: an excerpt of the source, or other errors.
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
        """Set the subject of an error that a shared rule raised without one."""
        self.subject = self.subject or subject

    @property
    def summary(self) -> str:
        """The message without location and details, for an error that is raised again elsewhere."""
        expected = f"expected {self.expected}" if self.expected else ""
        text = "; ".join(part for part in (self.problem, expected, self.remedy) if part)
        return f"[{self.subject}] {text}" if self.subject else text

    def __str__(self) -> str:
        location = f" (at {self.location})" if self.location else ""
        return self.summary + location + (f"\n{self.details}" if self.details else "")


class ArgumentError(MetaError, TypeError):
    """An argument of the wrong Python type, an unknown argument, or a missing one."""


class TypeInferenceError(MetaError, ValueError):
    """Arguments whose shapes, dtypes or values do not fit together."""


class PositionError(MetaError, IndexError):
    """An invalid or out-of-range index."""


class DeviceError(MetaError, ValueError):
    """A missing device, or operands on different devices."""


class DispatchError(MetaError, RuntimeError):
    """No dialect accepts a call."""


class KernelError(MetaError, RuntimeError):
    """An error while a kernel is built or run."""


class GradientError(MetaError, RuntimeError):
    """A gradient that does not exist or cannot be computed."""


class RegistryError(MetaError, LookupError):
    """An unknown or already registered name of an operator, schema or dialect."""


class IRError(MetaError, ValueError):
    """IR text with a syntax error, or ill-formed IR."""


class TraceError(MetaError, RuntimeError):
    """A Python function that cannot be recorded as IR."""


class NotSupportedError(MetaError, NotImplementedError):
    """A valid request that this version does not support."""


def user_location() -> tuple[str, int] | None:
    """The file and line of the innermost frame outside this package, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_NOT_USER):
            return filename, frame.f_lineno
        frame = frame.f_back
    return None


def user_frame() -> str:
    """`file:line` of the innermost frame outside this package, or ""."""
    location = user_location()
    return f"{location[0]}:{location[1]}" if location else ""


@contextlib.contextmanager
def attributed(subject: str) -> Generator[None, None, None]:
    """Name the subject of errors that shared rules raise inside the block."""
    try:
        yield
    except MetaError as error:
        error.attribute(subject)
        raise


def combined(errors: Sequence[E]) -> E:
    """The first of several errors; its details list the distinct messages of the others, one per line."""
    first, *others = errors
    first.details = "\n".join(text for text in dict.fromkeys(map(str, others)) if text != str(first))
    return first


def did_you_mean(name: str, names: Iterable[str], limit: int = 3) -> str:
    """`did you mean 'softmax'?` for a misspelt `name`, or "" if no name in `names` is similar."""
    matches = difflib.get_close_matches(name, list(names), n=limit, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else ""
