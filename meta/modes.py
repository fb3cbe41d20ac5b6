"""Thread-local modes: gradient recording, dialect preference, autocast, observers of calls.

Modes that are off must not slow the eager fast path. `scopes.active` counts the open scopes, in all threads, that
change the choice of operators; while it is zero, the fast path checks no mode. Gradient mode is not counted, because it
is read only if an argument is tracked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ContextDecorator, contextmanager
from threading import local
from typing import Any, TypeVar, overload

from meta.errors import ArgumentError
from meta.locks import new_lock


class Scopes:
    """The number of open scopes, see the module docstring."""

    __slots__ = ("_lock", "active")

    def __init__(self) -> None:
        self.active = 0
        self._lock = new_lock("scopes")

    def change(self, difference: int) -> None:
        with self._lock:
            self.active += difference


class Modes(local):
    """The modes of this thread."""

    grad_enabled: bool = True
    dialects: tuple[str, ...] | None = None
    """Names of the allowed dialects in order of preference; None allows all dialects, by plevel."""
    cpu: Any = None
    """The meta.backend.tvm.cpu.CpuTarget that programs are compiled for, None for the CPU of this machine."""
    tuning: Any = None
    """The meta.backend.tvm.target.KnobChoices of the program that is compiled, None without tuning."""
    knobs: Any = None
    """The meta.backend.tvm.target.Knobs of the kernel that is computed or scheduled, None without tuning."""
    autocast: Any = None
    """The autocast policy: a callable (op, args) -> args."""
    trace: Any = None
    """The meta.tracing.state.Trace that this thread records; arrays, `backward` and random generators read it."""
    emit: Callable[[Any, tuple[Any, ...]], Any] | None = None
    """Records an operator call (op, normalised arguments) instead of running it; set by a trace or a pass."""
    transform: Any = None
    """The innermost meta.autograd.levels.Level that this thread is in; its method `emit` is the mode `emit`."""
    checks_positions: bool = False
    """Whether compiled programs refuse positions out of range, as with META_CHECK=1."""
    skips_positions: bool = False
    """Whether reference kernels leave out positions out of range, inside of a call that refuses them or skips them."""
    observers: tuple[Callable[[Any, Any], None], ...] = ()
    """Called as observer(call, candidate) for every chosen operator."""
    anomalies: Any = None
    """The meta.profiler.anomaly.Anomalies of this thread, which looks at results."""
    profiler: Any = None
    """The meta.profiler.recorder.Recorder of this thread, which times operators and programs."""


scopes = Scopes()
modes = Modes()


@contextmanager
def scoped(**values: object) -> Generator[None, None, None]:
    """Set modes of this thread that change the choice of operators, by name, inside a `with` block."""
    before = {name: getattr(modes, name) for name in values}
    scopes.change(1)
    for name, value in values.items():
        setattr(modes, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(modes, name, value)
        scopes.change(-1)


@contextmanager
def suspended() -> Generator[None, None, None]:
    """Run operators on arrays inside the block even if this thread records a program."""
    before = modes.trace, modes.emit, modes.transform
    modes.trace = modes.emit = modes.transform = None
    try:
        yield
    finally:
        modes.trace, modes.emit, modes.transform = before


@contextmanager
def isolated(*dialects: str) -> Generator[None, None, None]:
    """Run operators on arrays inside the block by the named dialects alone: nothing that this thread records, casts,
    observes or measures knows of it."""
    own = vars(modes)
    before = dict(own)
    scopes.change(1)
    own.clear()
    modes.grad_enabled, modes.dialects = False, dialects
    try:
        yield
    finally:
        own.clear()
        own.update(before)
        scopes.change(-1)


class GradMode(ContextDecorator):
    """Enable or disable gradient recording in this thread, inside a block or a decorated function."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._before: list[bool] = []

    def _recreate_cm(self) -> GradMode:
        """A new object for each call of a decorated function, see contextlib.ContextDecorator."""
        return GradMode(self.enabled)

    def __enter__(self) -> None:
        self._before.append(modes.grad_enabled)
        modes.grad_enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        modes.grad_enabled = self._before.pop()


F = TypeVar("F", bound=Callable[..., Any])


class _GradSwitch:
    """`no_grad` or `enable_grad`: makes a GradMode, or decorates a function with one."""

    def __init__(self, name: str, enabled: bool, text: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = text
        self._enabled = enabled

    @overload
    def __call__(self) -> GradMode: ...
    @overload
    def __call__(self, function: F) -> F: ...
    def __call__(self, function: Any = None) -> Any:
        mode = GradMode(self._enabled)
        return mode if function is None else mode(function)

    def __enter__(self) -> None:
        raise ArgumentError(self.__name__, "it is not called", "a call", f"write with meta.{self.__name__}():")

    def __exit__(self, *_: object) -> None:
        """Never reached."""


no_grad = _GradSwitch("no_grad", False, "Record no gradients: `with no_grad():`, or as a decorator, in this thread.")
enable_grad = _GradSwitch(
    "enable_grad",
    True,
    "Record gradients again inside of `no_grad`: `with enable_grad():`, or as a decorator, in this thread.",
)


def is_grad_enabled() -> bool:
    """Whether calls in this thread are recorded."""
    return modes.grad_enabled


def checks_always() -> bool:
    """Whether checks of positions are asked for where they cost time: on GPUs and in compiled programs."""
    asked = os.environ.get("META_CHECK", "0").strip().lower() not in ("", "0", "off", "false", "no")
    return asked or modes.checks_positions
