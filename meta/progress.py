"""Long compilations: their progress on a terminal, Ctrl-C meanwhile, and no garbage collections.

    with compiling("step"):
        stage("schedule kernels", total=90)
        ...
        advance()

`rich` draws a line on standard error that disappears at the end, at the earliest after `DELAY` seconds. Where standard
error is not a terminal, or rich (the extra `progress`) is not installed, one plain line says after `PLAIN_DELAY`
seconds what takes so long. META_PROGRESS=0 switches both off. Work in other threads than the thread of `compiling` is
not shown.

    with timed_stages() as seconds:
        step(x, y)
    print(seconds)                  # {"trace": 0.4, "passes": 0.6, ..., "run": 0.1}

KeyboardInterrupt is raised where TVM is left, not inside of it (`deferred`): in a Python function that TVM calls it
would come back as an error of TVM, and a module of TVM that is interrupted while it is imported leaves half of its
types behind, with which the next import crashes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import local
from typing import Any

DELAY = 1.0
"""Seconds of work after which the line appears."""
PLAIN_DELAY = 5.0
"""Seconds of work after which the plain line appears."""


class _Display:
    """The line of one compilation; drawn at the first stage or step after `DELAY`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def show(self, stage: str, total: int | None, done: int) -> None:
        if self.bar is None and time.monotonic() - self.start < DELAY:
            return
        if self.bar is None:
            self.bar = _bar()
            self.bar.start()
            self.task = self.bar.add_task("")
        self.bar.update(self.task, description=f"compile {self.name}: {stage}", total=total, completed=done)
        self.bar.refresh()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


class _PlainDisplay:
    """The one line of a compilation without a terminal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.due = time.monotonic() + PLAIN_DELAY

    def show(self, stage: str, total: int | None, done: int) -> None:
        if time.monotonic() < self.due:
            return
        self.due = float("inf")
        of = f" {done} of {total}" if total is not None else ""
        text = f"meta: compiling {self.name} has taken {PLAIN_DELAY:.0f} s, now: {stage}{of}"
        print(f"{text} (META_PROGRESS=0 hides this line)", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """The line stays."""


class _Stopwatch:
    """The seconds of the stages so far, and the present stage with its start."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage, self.start = "trace", time.perf_counter()

    def enter(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self.start
        self.stage, self.start = stage, now


class _State(local):
    display: _Display | _PlainDisplay | None = None
    stopwatch: _Stopwatch | None = None
    depth: int = 0
    stage: str = ""
    total: int | None = None
    done: int = 0


_state = _State()


@contextmanager
def compiling(name: str) -> Generator[None, None, None]:
    """Show the stages of the block, and raise interrupts between their steps alone. A compilation inside of another one
    is part of it."""
    display = _new_display(name) if _state.display is None else None
    if display is not None:
        _state.display = display
    _state.depth += 1
    try:
        with deferred():
            yield
    finally:
        _state.depth -= 1
        if not _state.depth and _state.stopwatch is not None:
            _state.stopwatch.enter("run")
        if display is not None:
            _state.display = None
            display.close()


@contextmanager
def timed_stages() -> Generator[dict[str, float], None, None]:
    """The seconds that this thread spends in each stage of the compilations in the block, which are complete at its
    end: "trace" before the first of them, "run" after each, and in between what `stage` names."""
    outer, stopwatch = _state.stopwatch, _Stopwatch()
    _state.stopwatch = stopwatch
    try:
        yield stopwatch.seconds
    finally:
        stopwatch.enter("")
        _state.stopwatch = outer


def stage(name: str, total: int | None = None) -> None:
    """The compilation of this thread is at a new stage, of `total` steps if their number is known."""
    check_interrupts()
    if _state.stopwatch is not None:
        _state.stopwatch.enter(name)
    if _state.display is not None:
        _state.stage, _state.total, _state.done = name, total, 0
        _state.display.show(name, total, 0)


def advance() -> None:
    """One more step of the stage is done."""
    check_interrupts()
    if _state.display is not None:
        _state.done += 1
        _state.display.show(_state.stage, _state.total, _state.done)


def enabled() -> bool:
    """Whether a compilation that starts now would be drawn on a terminal."""
    return _is_switched_on() and sys.stderr.isatty() and find_spec("rich") is not None


def _is_switched_on() -> bool:
    return os.environ.get("META_PROGRESS", "1") != "0" and sys.stderr is not None


def _new_display(name: str) -> _Display | _PlainDisplay | None:
    if not _is_switched_on():
        return None
    return _Display(name) if enabled() else _PlainDisplay(name)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)


# --- Ctrl-C and garbage collections ----------------------------------------------------------------------------------

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


def check_interrupts() -> None:
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


@contextmanager
def without_collection(*, lasting: bool = False) -> Generator[None, None, None]:
    """No search for cycles during the block, unless the program asks for one.

    Python's search visits all living objects, again and again while a program is built from many small ones: a fifth of
    the processor time in which BERT-base's training step is traced, transformed and looked up on disk.

    lasting: for imports, whose objects live as long as the process: the search of young objects that follows would
    visit them, for several milliseconds of a first call."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if lasting and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # all objects are now in the oldest generation, and none was visited
            gc.enable()
