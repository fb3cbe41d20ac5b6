"""One timed piece of work."""

from __future__ import annotations

from dataclasses import dataclass


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
