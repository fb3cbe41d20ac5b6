"""Events in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source of the format: Google's document "Trace Event Format"."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from meta.profiler.events import Event


def trace(events: Sequence[Event]) -> dict[str, Any]:
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
            "ts": event.start / 1e3, "dur": event.duration / 1e3, "args": _arguments(event),
        })  # fmt: skip
        if event.living is not None:
            end = (event.start + event.duration) / 1e3
            out.append({"ph": "C", "name": "living bytes", **common, "ts": end, "args": {"bytes": event.living}})
    return {"traceEvents": out, "displayTimeUnit": "ms"}


def _arguments(event: Event) -> dict[str, Any]:
    facts = {
        "lines": list(event.lines), "operators": list(event.operators), "operands": event.shapes,
        "own us": event.own / 1e3,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value}
