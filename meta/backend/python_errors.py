"""Exceptions of Python functions that a compiled program calls.

TVM hands an exception on as text, and raises a RuntimeError at the other side. The functions that are registered for
programs keep the exception, and calls of programs raise it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

from meta.backend.memory.allocation import refuse
from meta.backend.tvm import adapter as tvm


class _Raised(threading.local):
    error: Exception | None = None


_raised = _Raised()


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which keeps what it raises for `reraise`. Compiled functions call no Python and stay as they are."""
    if isinstance(function, tvm.PackedFunction):
        return function

    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            _raised.error = error
            raise

    return run


def reraise(error: Exception) -> NoReturn:
    """Raise the exception of a Python function that arrived as `error`; DeviceError where memory
    ran out; `error` itself if it began elsewhere."""
    original, _raised.error = _raised.error, None
    if original is None or str(original) not in str(error):
        refuse(error, "a compiled call (executor.memory says what it needs)")
        raise error
    raise original from original.__cause__
