"""Errors of reading and converting Relay programs."""

from __future__ import annotations

from meta.errors import MetaError
from meta.frontend.examination import UnsupportedProgramError
from meta.frontend.relay.ast import Place


class RelayError(MetaError, ValueError):
    """A Relay program, or its parameters, that cannot be read or converted."""


class RelaySyntaxError(RelayError):
    """Relay text that does not parse.

    line, column: of the mistake, from 1; 0 without a place.  source: the name of the text, "" without one."""

    def __init__(self, *parts: str, line: int = 0, column: int = 0, source: str = "", details: str = "") -> None:
        super().__init__(*parts, details=details)
        self.line = line
        self.column = column
        self.source = source


_LONGEST_EXCERPT = 100


def syntax_error(
    text: str, line: int, column: int, problem: str, expected: str = "", remedy: str = "", source: str = ""
) -> RelaySyntaxError:
    """The error about a line and column of `text`, with the line and a caret below the column."""
    problem = f"{source or 'text'}, line {line}, column {column}: {problem}"
    excerpt = _excerpt(text, line, column)
    return RelaySyntaxError(
        "relay", problem, expected, remedy, line=line, column=column, source=source, details=excerpt
    )


def _excerpt(text: str, line: int, column: int) -> str:
    """The line and a caret, cut around the column where the line is long."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if not start:
            return ""
    end = text.find("\n", start)
    shown = text[start : end if end >= 0 else len(text)].rstrip("\r")
    left = max(0, column - 1 - _LONGEST_EXCERPT // 2)
    shown = shown[left : left + _LONGEST_EXCERPT]
    caret = column - 1 - left
    visible = "".join(c if c.isprintable() else " " for c in shown)
    return f"    {'...' if left else ''}{visible}\n    {' ' * (3 * bool(left) + caret)}^"


class UnsupportedError(RelayError, UnsupportedProgramError):
    """A Relay program that can be read but not converted."""


def located(place: Place, problem: str) -> str:
    """A problem, prefixed with its place in the program."""
    where = place_text(place)
    return f"{where}: {problem}" if where else problem


def place_text(place: Place) -> str:
    """A place in words, "" for an unknown one."""
    return str(place) if place.line or place.column else ""
