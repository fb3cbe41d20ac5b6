"""Errors of types, shapes and emitted programs, which know nothing of the file that is read, with their place in it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from meta.errors import ArgumentError, MetaError, NotSupportedError


@contextmanager
def errors_located(
    error_type: type[MetaError], unsupported: type[MetaError], subject: str, place: Callable[[], str]
) -> Generator[None, None, None]:
    """Raise errors of meta inside as errors of a reader, with a place: `unsupported` for what is not supported,
    `error_type` for everything else. Errors of the reader and errors about arguments (ArgumentError) stay as they are.

    place: where the reader is when the error is raised, in words; "" for an unknown place."""
    try:
        yield
    except (error_type, ArgumentError):
        raise
    except MetaError as error:
        kind = unsupported if isinstance(error, NotSupportedError) else error_type
        where = f"{place()}: " if place() else ""
        problem = error.problem if error.subject in ("", subject) else f"[{error.subject}] {error.problem}"
        raise kind(subject, where + problem, error.expected, remedy=error.remedy) from error
