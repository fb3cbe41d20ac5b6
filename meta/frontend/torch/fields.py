"""Values of JSON from a `.pt2` file, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.frontend.torch.errors import TorchProgramError
from meta.limits import MAX_DIMENSION, MAX_STRING


def bad_file(
    source: str, problem: str, expected: str = "a file that torch.export.save wrote", remedy: str = ""
) -> TorchProgramError:
    """The error about a file. source: its name, and the place in it."""
    return TorchProgramError("torch", f"{source}: {problem}", expected, remedy)


def fields(value: object, where: str) -> Mapping[str, Any]:
    """An object of JSON. where: as in `bad_file`. Raises TorchProgramError for another value."""
    if not isinstance(value, dict):
        raise _wrong(value, where, "an object")
    return value


def list_of(value: object, where: str) -> Sequence[Any]:
    """A list. Raises TorchProgramError for another value."""
    if not isinstance(value, list):
        raise _wrong(value, where, "a list")
    return value


def text(value: object, where: str) -> str:
    """A string of at most MAX_STRING characters. Raises TorchProgramError for another value."""
    if not isinstance(value, str) or len(value) > MAX_STRING:
        raise _wrong(value, where, "a string")
    return value


def integer(value: object, where: str) -> int:
    """An int of 64 bits. Raises TorchProgramError for another value."""
    if type(value) is not int or not -MAX_DIMENSION - 1 <= value <= MAX_DIMENSION:
        raise _wrong(value, where, "an int of 64 bits")
    return value


def union(value: object, where: str) -> tuple[str, Any]:
    """The tag and the value of an object with one field. Raises TorchProgramError for another value."""
    tagged = fields(value, where)
    if len(tagged) != 1:
        raise _wrong(value, where, "an object with one field")
    ((tag, inner),) = tagged.items()
    return tag, inner


def _wrong(value: object, where: str, expected: str) -> TorchProgramError:
    return bad_file(where, f"a value is {repr(value)[:80]}", expected)
