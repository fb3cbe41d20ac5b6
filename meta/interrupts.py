"""Ctrl-C while TVM works: KeyboardInterrupt is raised where TVM is left, not inside of it.

A KeyboardInterrupt in a Python function that TVM calls would come back as an error of TVM, and a module of TVM that is
interrupted while it is imported leaves half of its types behind, with which the next import crashes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_INTERRUPT = signal.SIGINT


class _Deferred:
    """Interrupts of the main thread that wait, and the handler that will get them."""

    handler: Callable[[int, Any], Any] | None = None
    first: float | None = None
    """When the first one came."""


_deferred = _Deferred()


@contextmanager
def deferred() -> Generator[None, None, None]:
    """Let an interrupt of the block wait for its end, or for `check`. A second one, a second or more after the first,
    is raised at once, so that a block without end can be left."""
    handler: Any = signal.getsignal(_INTERRUPT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or _deferred.handler is not None or not callable(handler):
        yield
        return
    _deferred.handler = handler
    try:
        signal.signal(_INTERRUPT, _defer)
        yield
    finally:
        _deferred.handler = None
        signal.signal(_INTERRUPT, handler)
        _raise_waiting(handler)


def check() -> None:
    """Raise an interrupt that waits. Called outside of TVM, between parts of a long block."""
    if _deferred.first is not None and threading.current_thread() is threading.main_thread() and _deferred.handler:
        _raise_waiting(_deferred.handler)


def _defer(number: int, frame: object) -> None:
    now = time.monotonic()
    if _deferred.first is None:
        _deferred.first = now
    elif now - _deferred.first >= 1 and _deferred.handler is not None:
        _deferred.first = None
        _deferred.handler(number, frame)


def _raise_waiting(handler: Callable[[int, Any], Any]) -> None:
    if _deferred.first is not None:
        _deferred.first = None
        handler(_INTERRUPT, None)
