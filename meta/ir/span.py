"""Where in the user's code a node of the IR came from."""

from __future__ import annotations

from dataclasses import dataclass

from meta.errors import user_location


@dataclass(frozen=True, slots=True)
class Span:
    """A file and a line in it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_span() -> Span | None:
    """The innermost line of the running call that is not this package's, None if there is none."""
    at = user_location()
    return Span(*at) if at else None
