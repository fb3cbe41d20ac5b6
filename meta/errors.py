"""Every error meta raises on purpose, and the one place that words them.

A message has four parts: `[softmax] what was wrong with the actual values; what is allowed; what to do`, followed by
where in the user's code it happened.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

# Frames that are not the user's: this package, code without a file, and what `with`, decorators and copies run through.
_NOT_USER = (str(Path(__file__).parent) + os.sep, "<", contextlib.__file__, copy.__file__, functools.__file__)


class MetaError(Exception):
    """Base of every error of this package."""


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
    """IR text that does not parse or IR that breaks a rule of its level."""


class TraceError(MetaError, RuntimeError):
    """A Python function that cannot be recorded as IR."""


class NotSupportedError(MetaError, NotImplementedError):
    """Something recognised that this version cannot do yet."""


def user_location() -> tuple[str, int] | None:
    """File and line of the innermost frame outside this package, None if there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
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


def message(where: str, wrong: str, allowed: str = "", do: str = "") -> str:
    """The four-part text of an error: `[where] wrong; allowed; do (at file:line)`."""
    parts = "; ".join(part for part in (wrong, allowed, do) if part)
    at = user_frame()
    return f"[{where}] {parts}" + (f" (at {at})" if at else "")


def reason(error: MetaError) -> str:
    """The text of an error without its last part, for an error that is raised again about another place."""
    return str(error).rsplit(" (at ", 1)[0]


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """`did you mean 'softmax'?` for a misspelt `name`, "" when nothing in `known` is close."""
    close = difflib.get_close_matches(name, list(known), n=limit, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
