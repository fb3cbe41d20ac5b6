"""Pictures of programs: what lives over their steps, their kernels as boxes, and their times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from meta.pictures import COLOURS, Canvas, Picture, areas, bars, bytes_text
from meta.records import record

LAYERS: Final = ("parameters", "state", "inputs and constants", "activations", "gradients")
_LARGEST: Final = 10
"""Tensors of the list below a picture of memory."""


@record
class Holding:
    """A tensor that lives. layer: one of LAYERS.  what: its name, or the operators that computed it.  lines:
    `file:line` of their calls."""

    layer: str
    bytes: int
    what: str
    lines: tuple[str, ...] = ()


@record(eq=False)
class Timeline:
    """What lives during each step of a program, in order."""

    steps: tuple[tuple[Holding, ...], ...]

    @property
    def totals(self) -> list[int]:
        return [sum(each.bytes for each in living) for living in self.steps]

    @property
    def peak(self) -> int:
        """The step during which most bytes live."""
        totals = self.totals
        return totals.index(max(totals)) if totals else 0

    def largest(self) -> list[Holding]:
        """The ten largest tensors at the peak."""
        return sorted(self.steps[self.peak], key=lambda each: -each.bytes)[:_LARGEST] if self.steps else []

    def draw(self, title: str, capacity: int) -> Picture:
        """The layers on top of each other, and the largest tensors at the peak. capacity: the bytes of a call."""
        layers = {name: [_bytes_of(living, name) for living in self.steps] for name in LAYERS}
        shown = {name: row for name, row in layers.items() if any(row)}
        largest = [
            f"{bytes_text(each.bytes):>10}  {each.layer}: {each.what}"
            + (f"  ({_first_line(each.lines)})" if each.lines else "")
            for each in self.largest()
        ]
        return areas(title, shown, self.peak, capacity, ["largest tensors at the peak", *largest] if largest else [])


def _bytes_of(living: Sequence[Holding], layer: str) -> int:
    return sum(each.bytes for each in living if each.layer == layer)


def times_chart(title: str, kernels: Sequence[Any], limit: int = 30) -> Picture:
    """The slowest kernels as bars. kernels: KernelTimes, the slowest first."""
    whole = sum(k.microseconds for k in kernels) or 1.0
    rows = [
        (
            " ".join(filter(None, (joined(k.ops) or k.name, _first_line(k.lines)))),
            k.microseconds,
            f"{k.microseconds:.1f} us, {k.microseconds / whole:.0%}",
        )
        for k in kernels[:limit]
    ]
    return bars(title, rows, ["\n".join([f"{k.name}: {k.calls} calls", *k.lines]) for k in kernels[:limit]])


# --- kernels as boxes -------------------------------------------------------------------------------------------------

_WIDTH, _GAP, _LINE, _PER_ROW, _MAX_OPERATORS = 220, 24, 15, 5, 8


@record
class KernelBox:
    """A kernel to draw. lines: `file:line` of its calls.  bytes: that it reads and writes.  microseconds: of a call,
    None if not timed.  sources: the boxes, by position, whose results it reads."""

    name: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    bytes: int
    microseconds: float | None
    sources: tuple[int, ...]

    @property
    def height(self) -> float:
        """The operators, and the time and bytes below."""
        return (1 + min(max(len(self.operators), 1), _MAX_OPERATORS + 1)) * _LINE + 12.0

    def draw(self, canvas: Canvas, x: float, y: float, dialects: dict[str, str]) -> None:
        """dialects: their colours; a new one gets the next."""
        dialect = (self.operators[0] if self.operators else "program").partition(".")[0]
        colour = dialects.setdefault(dialect, COLOURS[len(dialects) % len(COLOURS)])
        canvas.box(x, y, _WIDTH, self.height, "box", "\n".join([self.name, *self.lines]), radius=4)
        canvas.box(x, y + self.height - 3, _WIDTH, 3, colour, dialect)
        shown = [each.rpartition(".")[2] for each in self.operators[:_MAX_OPERATORS]] or [self.name]
        if len(self.operators) > _MAX_OPERATORS:
            shown.append(f"and {len(self.operators) - _MAX_OPERATORS} more")
        for k, text in enumerate(shown):
            canvas.text(x + 8, y + 16 + _LINE * k, text)
        cost = [] if self.microseconds is None else [f"{self.microseconds:.1f} us"]
        canvas.text(x + 8, y + self.height - 9, ", ".join([*cost, bytes_text(self.bytes)]), "small")
        canvas.text(x + _WIDTH - 8, y + self.height - 9, _first_line(self.lines), "small faint", "end")


def kernel_graph(title: str, boxes: Sequence[KernelBox]) -> Picture:
    """Kernels as boxes, in rows by what they depend on; a bar below has the colour of the dialect."""
    canvas = Canvas()
    rows: dict[int, list[int]] = {}
    depth: list[int] = []
    for i, box in enumerate(boxes):
        depth.append(1 + max((depth[j] for j in box.sources), default=-1))
        rows.setdefault(depth[i], []).append(i)
    places: dict[int, tuple[float, float]] = {}
    y = 40.0
    parts = [row[i : i + _PER_ROW] for _, row in sorted(rows.items()) for i in range(0, len(row), _PER_ROW)]
    for part in parts:
        places.update({i: (12.0 + column * (_WIDTH + _GAP), y) for column, i in enumerate(part)})
        y += max(boxes[i].height for i in part) + 36
    for i, box in enumerate(boxes):
        for j in box.sources:
            (x, top), height = places[j], boxes[j].height
            start, across, bend = x + _WIDTH / 2, places[i][0] - x, (places[i][1] - top - height) / 2
            curve = f"c0 {bend:.5g} {across:.5g} {bend:.5g} {across:.5g} {2 * bend:.5g}"
            canvas.path(f"M{start:.5g} {top + height:.5g}{curve}", "edge")
    dialects: dict[str, str] = {}
    for i, (x, top) in places.items():
        boxes[i].draw(canvas, x, top, dialects)
    for k, (dialect, colour) in enumerate(dialects.items()):
        canvas.box(12 + 110 * k, y, 10, 10, colour)
        canvas.text(27 + 110 * k, y + 9, dialect, "small")
    columns = max(map(len, parts), default=1)
    return canvas.picture(24 + columns * (_WIDTH + _GAP) - _GAP, y + 24, title)


def joined(operators: Sequence[str]) -> str:
    """The operators of a kernel in a line of text."""
    most = 4  # Operators of a kernel in a line of text.
    names = [name.rpartition(".")[2] for name in operators]
    return " + ".join(names[:most]) + (f" + {len(names) - most} more" if len(names) > most else "")


def _first_line(lines: Sequence[str]) -> str:
    """The file, without folders, and line of the first of `lines`, and the number of the others."""
    return Path(lines[0]).name + (f" +{len(lines) - 1}" if len(lines) > 1 else "") if lines else ""
