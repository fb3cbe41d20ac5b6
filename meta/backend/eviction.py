"""Listeners that drop their references when kernels are evicted from memory."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def on_eviction(listener: Callable[[], None]) -> None:
    """Call `listener()` whenever kernels are evicted: it drops what it keeps, and asks again for what it needs."""
    _listeners.append(listener)


def report_eviction() -> None:
    """Tell the listeners that kernels are evicted."""
    for listener in _listeners:
        listener()
