"""Where in the user's code a node of the IR came from."""

from __future__ import annotations

from meta.errors import user_location
from meta.records import record


@record
class Span:
    """A file and a line in it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_span() -> Span | None:
    """The innermost line of the call stack outside of this package, None if there is none."""
    location = user_location()
    return Span(*location) if location else None
