"""Timed pieces of work, and their form in the Trace Event Format, which Perfetto (ui.perfetto.dev) and
chrome://tracing open.

Source of the format: Google's document "Trace Event Format"."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """kind: "operator" (an eager call), "program" (a call of a compiled one), "kernel" (one inside of a program),
    "compile" (choosing and building a kernel, or a program), or "range" (of `annotate`).
    name: of the operator, kernel, program or range.  operators: those in a kernel, in order.
    start, duration: nanoseconds since the profile began.  own: the duration less the duration of the events inside.
    lines: `file:line` of the user's code; of a kernel, every line that it may run for.
    shapes: dtype and shape of the operands.  living: bytes that live when it ends, None where that is unknown."""

    kind: str
    name: str
    start: int
    duration: int
    own: int
    lines: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    shapes: str = ""
    living: int | None = None


def chrome_trace(events: Sequence[Event]) -> dict[str, Any]:
    """The JSON object of a trace: complete events ("X") and counters of living bytes ("C"), times in microseconds."""
    process, thread = os.getpid(), threading.get_native_id()
    common = {"pid": process, "tid": thread}
    out: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", **common, "args": {"name": "meta"}},
        {"ph": "M", "name": "thread_name", **common, "args": {"name": "operators and kernels"}},
    ]
    for event in sorted(events, key=lambda e: (e.start, -e.duration)):
        out.append({
            "ph": "X", "name": event.name, "cat": event.kind, **common,
            "ts": event.start / 1e3, "dur": event.duration / 1e3, "args": _facts(event),
        })  # fmt: skip
        if event.living is not None:
            end = (event.start + event.duration) / 1e3
            out.append({"ph": "C", "name": "living bytes", **common, "ts": end, "args": {"bytes": event.living}})
    return {"traceEvents": out, "displayTimeUnit": "ms"}


def _facts(event: Event) -> dict[str, Any]:
    facts = {
        "lines": list(event.lines), "operators": list(event.operators), "operands": event.shapes,
        "own us": event.own / 1e3,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value}
