"""Errors of reading and converting Relay programs."""

from __future__ import annotations

from collections.abc import Mapping

from meta.errors import MetaError, NotSupportedError
from meta.frontend.relay.ast import Place


class RelayError(MetaError, ValueError):
    """A Relay program, or its parameters, that cannot be read or converted."""


class RelaySyntaxError(RelayError):
    """Relay text with a mistake.

    line, column: where, both from 1; 0 when the mistake has no place.  source: the name of the text, "" without one."""

    def __init__(self, *parts: str, line: int = 0, column: int = 0, source: str = "", details: str = "") -> None:
        super().__init__(*parts, details=details)
        self.line = line
        self.column = column
        self.source = source


_LONGEST_EXCERPT = 100


def syntax_error(
    text: str, line: int, column: int, problem: str, expected: str = "", remedy: str = "", source: str = ""
) -> RelaySyntaxError:
    """The error about line `line`, column `column` of `text`, with that line and a caret below the column."""
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


class UnsupportedError(RelayError, NotSupportedError):
    """Something in a Relay program that is read but cannot be converted.

    operators: the operators that have no converter, with how often each occurs; empty when it is about something else.
    """

    def __init__(self, *parts: str, remedy: str = "", operators: Mapping[str, int] | None = None) -> None:
        super().__init__(*parts, remedy=remedy)
        self.operators: Mapping[str, int] = operators or {}


def at(place: Place, wrong: str) -> str:
    """What is wrong, behind where in the program it is."""
    return f"{place}: {wrong}" if place.line or place.column else wrong
