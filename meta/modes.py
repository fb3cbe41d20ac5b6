"""Thread-local modes: gradient recording, dialect preference, autocast, observers of calls.

The eager fast path must not pay for modes that are off. `scopes.active` counts, over all threads, the open scopes that
change how operators are chosen; while it is zero the fast path does not look any further. Gradient mode is not among
them: it is consulted only when an argument is tracked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ContextDecorator, contextmanager
from threading import Lock, local
from typing import Any


class Scopes:
    """The count of open scopes (see the module docstring)."""

    __slots__ = ("_lock", "active")

    def __init__(self) -> None:
        self.active = 0
        self._lock = Lock()

    def change(self, by: int) -> None:
        with self._lock:
            self.active += by


class Modes(local):
    """What is in force in this thread."""

    grad_enabled: bool = True
    dialects: tuple[str, ...] | None = None
    """Names of the only dialects allowed, in order of preference; None for all by plevel."""
    autocast: Any = None
    """The autocast policy: a callable (op, args) -> args."""
    trace: Any = None
    """The meta.tracing.state.Trace being recorded in this thread: what arrays, `backward` and random generators ask."""
    emit: Callable[[Any, tuple[Any, ...]], Any] | None = None
    """Records an operator call (op, normalised arguments) in place of running it: the trace's, or that of a pass."""
    observers: tuple[Callable[[Any, Any], None], ...] = ()
    """Called as observer(call, candidate) for every operator chosen."""


scopes = Scopes()
modes = Modes()


@contextmanager
def scoped(name: str, value: Any) -> Generator[None, None, None]:
    """Set an operator-choosing mode of this thread inside a `with` block."""
    before = getattr(modes, name)
    scopes.change(1)
    setattr(modes, name, value)
    try:
        yield
    finally:
        setattr(modes, name, before)
        scopes.change(-1)


@contextmanager
def suspended() -> Generator[None, None, None]:
    """Inside the block operators on arrays run, also while a program is recorded in this thread."""
    before = modes.trace, modes.emit
    modes.trace = modes.emit = None
    try:
        yield
    finally:
        modes.trace, modes.emit = before


class GradMode(ContextDecorator):
    """Record (or do not record) gradients inside a block or decorated function, in this thread."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._before: list[bool] = []

    def _recreate_cm(self) -> GradMode:
        """Each call of a decorated function has its own (see contextlib.ContextDecorator)."""
        return GradMode(self.enabled)

    def __enter__(self) -> None:
        self._before.append(modes.grad_enabled)
        modes.grad_enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        modes.grad_enabled = self._before.pop()
