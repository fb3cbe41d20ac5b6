"""Errors of TVM's compiler as errors of meta."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Final

from meta.errors import KernelError, MetaError

_LONGEST: Final = 500
"""Characters of TVM's message: some hold a whole function."""


@contextlib.contextmanager
def compiling(subject: str) -> Generator[None, None, None]:
    """Raise KernelError for what TVM raises inside the block. subject: the operators, or the part of the package."""
    try:
        yield
    except (MetaError, MemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        problem = f"TVM's compiler raised {type(error).__name__}: {lines[0]}"[:_LONGEST]
        remedy = "change the sizes or the dtype, or choose another dialect: meta.with_dialect(...)"
        raise KernelError(subject, problem, "a kernel that TVM compiles", remedy) from error
