"""`profile`, `annotate` and `nvtx_ranges`, and the finished profile."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from meta.device import CPU
from meta.errors import user_location
from meta.files.atomic import replacing
from meta.modes import modes, scoped
from meta.pictures import Picture
from meta.profiler import memory, summary
from meta.profiler.events import Event, chrome_trace
from meta.profiler.nvtx import ranges
from meta.profiler.recorder import Recorder


class Profile:
    """The operators and programs that a `with meta.profiler.profile()` block ran. Printing it gives a table by kind,
    name and line.

    events: in the order in which they ended."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def rows(self) -> list[summary.Row]:
        """The events by kind, name and lines, the longest own time first."""
        return summary.rows(self.events)

    def table(self, limit: int | None = 30) -> str:
        """The rows as text, `limit` of them (None: all)."""
        return summary.text(self.rows(), limit)

    def draw(self, limit: int = 30) -> Picture:
        """The rows as a bar chart of their own time, in SVG; the result is a str with a method `save(path)`."""
        return summary.chart(self.rows(), limit)

    def trace(self) -> dict[str, Any]:
        """The events as a Chrome trace: an object to be written as JSON."""
        return chrome_trace(self.events)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace, which ui.perfetto.dev and chrome://tracing open.

        Raises FileError if the file cannot be written; one that was there is unchanged then."""
        with replacing(path) as file:
            file.write(json.dumps(self.trace()).encode())

    def peak(self) -> int:
        """The most bytes that lived at the end of an operator or during a kernel; 0 if none are known."""
        return max((e.living for e in self.events if e.living is not None), default=0)

    def save_memory(self, path: str | os.PathLike[str]) -> None:
        """Write a PNG of the bytes of living arrays over time, without the time of compilations.

        Of eager code these are the results computed inside of the block, of programs the planned tensors, parameters,
        state and constants. Raises MetaError without matplotlib (the extra `demo`) or without any such event, and
        FileError if the file cannot be written."""
        image = memory.plot(self.events)
        with replacing(path) as file:
            file.write(image)

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        return summary.rich_table(self.rows(), 30)


@contextmanager
def profile(*, memory: bool = True, nvtx: bool = False) -> Generator[Profile, None, None]:
    """Time every operator, program and kernel that this thread runs inside of the block.

        with meta.profiler.profile() as p:
            step(x, target)
        print(p)
        p.save_trace("step.json")

    memory: also count the bytes of living arrays.  nvtx: also open NVTX ranges, if NVTX is there.
    Each operator and kernel is timed with the device idle before and after it, so that times of CUDA are the kernels'
    own and the sum is longer than an undisturbed run. Programs are compiled once more, with calls that can be timed;
    their results and their effects on parameters are the same."""
    events: list[Event] = []
    recorder = Recorder(events, memory=memory, ranges=ranges() if nvtx else None)
    finished = Profile(events)
    with scoped(profiler=recorder):
        yield finished


@contextmanager
def nvtx_ranges() -> Generator[bool, None, None]:
    """Open an NVTX range around every operator and program of this thread, without timing or waiting for anything.

    Gives whether NVTX was found (the package nvtx, torch with CUDA, or libnvToolsExt); without it nothing happens."""
    library = ranges()
    if library is None:
        yield False
        return
    with scoped(profiler=Recorder(None, memory=False, ranges=library)):
        yield True


@contextmanager
def annotate(name: str) -> Generator[None, None, None]:
    """Name a part of the code in the profile and in NVTX. Does nothing while neither is on."""
    recorder = modes.profiler
    if recorder is None:
        yield
        return
    location = user_location()
    lines = () if location is None else (f"{location[0]}:{location[1]}",)
    with recorder.event("range", name, CPU, lines):
        yield
