"""Diagrams of boxes and arrows, from text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scripts.pictures.svg import FRAME, SMALL, TEXT, Drawing

_WIDTH = 520
_GAP = 34
_LINE = 17


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its first line is its title. column, columns: where it is among equal columns of its row, and how wide."""

    lines: Sequence[str]
    column: int = 0
    columns: int = 1


Row = Mapping[str, Box]


def diagram(title: str, rows: Sequence[tuple[Row, int]], arrows: Sequence[tuple[str, str, str]]) -> str:
    """Rows of boxes by name, each with its number of columns, and arrows (from, to, label) to boxes further down."""
    canvas = Drawing()
    places: dict[str, tuple[float, float, float, float]] = {}
    y = 6.0
    for boxes, columns in rows:
        height = max(len(box.lines) for box in boxes.values()) * _LINE + 12
        for name, box in boxes.items():
            unit = (_WIDTH - 12 + 12) / columns
            x, width = 6 + box.column * unit, unit * box.columns - 12
            places[name] = (x, y, width, height)
            canvas.box(x, y, width, height, FRAME, radius=6)
            for i, line in enumerate(box.lines):
                canvas.text(x + 10, y + 19 + i * _LINE, line, SMALL if i else TEXT)
        y += height + _GAP
    for start, end, label in arrows:
        (x0, y0, w0, h0), (x1, y1, w1, _) = places[start], places[end]
        low, high = max(x0, x1), min(x0 + w0, x1 + w1)
        x = (low + high) / 2
        canvas.arrow(x, y0 + h0, y1)
        if label:
            canvas.text(x + 8, y1 - 12, label, SMALL)
    return canvas.picture(_WIDTH, y - _GAP + 6, title)


def declaration() -> str:
    """From a declaration to a kernel."""
    rows: list[tuple[Row, int]] = [
        ({"declaration": Box(["Declaration", "schema, type function, gradient, TE compute, mixed-precision rule"])}, 1),
        ({"function": Box(["meta.softmax(x): function, method, operator of the IR", "derived, not written"])}, 1),
        ({"eager": Box(["Eager call", "checked by the type function,", "recorded for backward"], 0),
          "trace": Box(["Trace", "a typed program:", "forward, backward, update"], 1)}, 2),
        ({"dispatch": Box(["Dispatch", "highest plevel that", "accepts: meta.explain"], 0),
          "passes": Box(["Passes", "simplify, casts, layouts,", "memory budget"], 1)}, 2),
        ({"kernel": Box(["One kernel", "TVM, cuDNN, torch, Triton, yours;", "all shapes, kept on disk"], 0),
          "program": Box(["One program of fused kernels", "updates in place, saved,", "called from C"], 1)}, 2),
    ]  # fmt: skip
    arrows = [
        ("declaration", "function", ""), ("function", "eager", "now"), ("function", "trace", "@meta.trace"),
        ("eager", "dispatch", ""), ("trace", "passes", "meta.vm.compile"), ("dispatch", "kernel", ""),
        ("passes", "program", "fuse, schedule"),
    ]  # fmt: skip
    return diagram("From the declaration of an operator to kernels", rows, arrows)


def rooms() -> str:
    """The folders of the package in layers; each may import what is below it."""
    layers = [
        ("cli, testing, inspect", "commands, checks, descriptions of operators"),
        ("data, distributed", "batches; training on several processes"),
        ("frontend, optim, amp, checkpoint, profiler", "other systems, updates, precision, files, times"),
        ("nn", "layers"),
        ("vm, model", "compiled programs: lower, plan, build, save"),
        ("passes, interpreter, autograd", "programs transformed, run, differentiated"),
        ("tracing", "programs from Python functions"),
        ("functional, special, random", "functions that call operators"),
        ("_generated", "typed functions with the fast path, from the declarations"),
        ("eager", "arrays, calls, the tape"),
        ("op", "registry, declarations, gradients, dialects"),
        ("backend", "TVM, CUDA, cuDNN, torch, Triton, memory"),
        ("ir, schema, leaves", "typed programs; arguments; errors, dtypes, sizes"),
    ]
    canvas = Drawing()
    for i, (names, purpose) in enumerate(layers):
        y = 6 + i * 46
        canvas.box(6, y, _WIDTH - 12, 40, FRAME, radius=6)
        canvas.text(16, y + 17, names, TEXT)
        canvas.text(16, y + 33, purpose, SMALL)
    return canvas.picture(_WIDTH, 10 + len(layers) * 46, "The folders of the package, each above what it may import")


def call() -> str:
    """The way of a call."""
    rows: list[tuple[Row, int]] = [
        ({"function": Box(["meta.softmax(x)", "meta/_generated/operators/nn.py"])}, 1),
        ({"cached": Box(["Cached for this type and axis", "allocate, kernel(x, out), wrap:", "about 1 us"], 0),
          "invoke": Box(["invoke", "bind arguments, autocast", "meta/eager/call.py"], 1)}, 2),
        ({"tape": Box(["record", "if x is tracked", "meta/eager/tape.py"], 0, 2),
          "declare": Box(["declare", "result type or error", "meta/op/declare"], 2, 2),
          "emit": Box(["emit", "while tracing", "meta/tracing"], 4, 2)}, 6),
        ({"choose": Box(["choose a dialect", "meta/op/dispatch.py"], 2, 2),
          "module": Box(["Module", "meta/ir, passes"], 4, 2)}, 6),
        ({"kernel": Box(["kernel", "compiled or loaded", "meta/backend"], 2, 2),
          "program": Box(["program", "lower, plan, build", "meta/vm"], 4, 2)}, 6),
    ]  # fmt: skip
    arrows = [
        ("function", "cached", "known"), ("function", "invoke", "new"), ("cached", "tape", ""),
        ("invoke", "declare", ""), ("invoke", "emit", ""), ("declare", "choose", ""), ("emit", "module", ""),
        ("choose", "kernel", ""), ("module", "program", ""),
    ]  # fmt: skip
    return diagram("The way of a call through the package", rows, arrows)
