"""Pictures in SVG: bar charts, curves, stacked areas, and text and boxes for drawings of programs.

They are text of a few kilobytes, need no library, and are readable on light and dark pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import floor, log10
from typing import Final

from meta.files.atomic import replacing

COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""P. Tol's bright scheme, which colour-blind readers can tell apart."""

_STYLE: Final = """text{font:12px system-ui,sans-serif;fill:#1f2328}.small{font-size:10px}.title{font-weight:600}
.faint{fill:#59636e}.axis{stroke:#8c959f;fill:none}.grid{stroke:#d1d9e0;fill:none}.box{fill:#f6f8fa;stroke:#8c959f}
.peak{stroke:#cc3311;fill:none;stroke-dasharray:4 3}.edge{stroke:#8c959f;fill:none;opacity:.6}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.faint{fill:#9198a1}.grid{stroke:#3d444d}.box{fill:#212830}}"""


class Picture(str):
    """The text of an SVG, which notebooks show."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG. Raises FileError if the file cannot be written; one that was there is unchanged then."""
        with replacing(path) as file:
            file.write(self.encode())

    def _repr_svg_(self) -> str:
        return str(self)


class Canvas:
    """Shapes of a picture, in pixels from the upper left corner. style: a class of the style sheet, or a colour."""

    sheet: str = _STYLE
    """The style sheet."""
    attributes: str = ""
    """Further attributes of the picture."""
    shows_title: bool = True

    def __init__(self) -> None:
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        self._parts.append(
            f'<text x="{x:.5g}" y="{y:.5g}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, style: str, tip: str = "", radius: int = 0) -> None:
        """tip: text that is shown while the pointer is over the box."""
        shape = f'x="{x:.5g}" y="{y:.5g}" width="{max(width, 0):.5g}" height="{max(height, 0):.5g}" rx="{radius}"'
        self._parts.append(f"<rect {shape} {_styled(style)}>{f'<title>{escape(tip)}</title>' if tip else ''}</rect>")

    def path(self, steps: str, style: str) -> None:
        """steps: in SVG's language of paths."""
        self._parts.append(f'<path d="{steps}" {_styled(style)}/>')

    def line(self, points: Iterable[tuple[float, float]], style: str) -> None:
        colour = f'stroke="{style}" fill="none" stroke-width="1.5"' if style.startswith("#") else f'class="{style}"'
        self._parts.append(f'<polyline points="{_joined(points)}" {colour}/>')

    def area(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        self._parts.append(f'<polygon points="{_joined(points)}" fill="{colour}"/>')

    def picture(self, width: float, height: float, title: str) -> Picture:
        """The picture, with `title` as its alternative text."""
        shown = escape(title)
        name = f"<title>{shown}</title><style>{self.sheet}</style>"
        name += f'<text x="12" y="20" class="title">{shown}</text>' if self.shows_title else ""
        box = f'viewBox="0 0 {width:.5g} {height:.5g}" width="{width:.5g}" height="{height:.5g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{shown}"{self.attributes}>'
        return Picture("\n".join([head, name, *self._parts, "</svg>\n"]))


def _styled(style: str) -> str:
    return f'fill="{style}"' if style.startswith("#") else f'class="{style}"'


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.5g},{y:.5g}" for x, y in points)


def bytes_text(count: float) -> str:
    """Bytes in the unit that keeps the number below 1024: "1.5 MiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def bars(title: str, rows: Sequence[tuple[str, float, str]], tips: Sequence[str] = ()) -> Picture:
    """A bar chart. rows: (name, value, text beside the bar).  tips: texts that are shown over the bars."""
    canvas, left, width, pitch = Canvas(), 300, 720, 22
    most = max((value for _, value, _ in rows), default=0) or 1
    for i, (name, value, note) in enumerate(rows):
        y = 36 + pitch * i
        canvas.text(left - 8, y + 13, _shortened(name, 46), "small", "end")
        length = (width - left - 130) * value / most
        canvas.box(left, y + 2, length, pitch - 6, COLOURS[0], tips[i] if tips else name)
        canvas.text(left + length + 6, y + 13, note, "small")
    return canvas.picture(width, 46 + pitch * len(rows), title)


def curves(title: str, series: Mapping[str, Sequence[float]], x_name: str = "step", y_name: str = "loss") -> Picture:
    """Lines of numbers by their position, with a legend."""
    canvas = Canvas()
    values = [v for row in series.values() for v in row]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    plot = _Plot(canvas, max(map(len, series.values()), default=1) - 1, low, high, x_name, y_name)
    for colour, row in zip(COLOURS * len(series), series.values(), strict=False):
        canvas.line(((plot.x(i), plot.y(v)) for i, v in enumerate(row)), colour)
    return canvas.picture(_WIDTH, plot.legend(series), title)


def areas(
    title: str, layers: Mapping[str, Sequence[float]], peak: int, capacity: float, notes: Sequence[str]
) -> Picture:
    """Bytes by step, the layers on top of each other.

    peak: the step to mark.  capacity: the bytes of a line across.  notes: lines of text below."""
    canvas, count = Canvas(), max(map(len, layers.values()), default=0)
    sums = [0.0] * count
    totals = [sum(row[i] for row in layers.values()) for i in range(count)]
    plot = _Plot(canvas, count, 0, max([*totals, capacity, 1]), "step of the program", "", bytes_text)
    for colour, row in zip(COLOURS, layers.values(), strict=False):
        above = [low + value for low, value in zip(sums, row, strict=True)]
        top = [(plot.x(i + end), plot.y(v)) for i, v in enumerate(above) for end in (0, 1)]
        bottom = [(plot.x(i + end), plot.y(v)) for i, v in enumerate(sums) for end in (0, 1)]
        canvas.area([*top, *reversed(bottom)], colour)
        sums = above
    canvas.line([(plot.x(0), plot.y(capacity)), (plot.x(count), plot.y(capacity))], "axis")
    canvas.text(plot.x(count), plot.y(capacity) - 4, f"reserved {bytes_text(capacity)}", "small faint", "end")
    if count:
        middle = plot.x(peak + 0.5)
        canvas.line([(middle, plot.y(0)), (middle, plot.y(totals[peak]))], "peak")
        canvas.text(middle, plot.y(totals[peak]) - 4, f"peak {bytes_text(totals[peak])}", "small", "middle")
    y = plot.legend(layers)
    for i, note in enumerate(notes):
        canvas.text(12, y + 8 + 16 * i, note, "small" if i else "title small")
    return canvas.picture(_WIDTH, y + 12 + 16 * len(notes), title)


_WIDTH: Final = 720
_TOP, _BOTTOM, _LEFT, _RIGHT = 36, 260, 76, 708
"""The rectangle of a plot."""


class _Plot:
    """Axes with numbers. x: from 0 to `last`.  y: from `low` to `high`."""

    def __init__(
        self,
        canvas: Canvas,
        last: float,
        low: float,
        high: float,
        x_name: str,
        y_name: str,
        text: Callable[[float], str] | None = None,
    ) -> None:
        self.canvas, self.last, self.low, self.high = canvas, max(last, 1), low, high if high > low else low + 1
        for value in _ticks(low, self.high, binary=text is not None):
            canvas.line([(_LEFT, self.y(value)), (_RIGHT, self.y(value))], "grid")
            canvas.text(_LEFT - 6, self.y(value) + 4, text(value) if text else f"{value:g}", "small", "end")
        for value in _ticks(0, self.last):
            canvas.text(self.x(value), _BOTTOM + 16, f"{value:g}", "small", "middle")
        canvas.line([(_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], "axis")
        canvas.text((_LEFT + _RIGHT) / 2, _BOTTOM + 32, x_name, "small", "middle")
        canvas.text(_LEFT + 4, _TOP + 6, y_name, "small")

    def x(self, value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * value / self.last

    def y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - self.low) / (self.high - self.low)

    def legend(self, names: Iterable[str]) -> float:
        """Draw it below the plot; returns where it ends."""
        x = float(_LEFT)
        for colour, name in zip(COLOURS * 9, names, strict=False):
            self.canvas.box(x, _BOTTOM + 44, 10, 10, colour)
            self.canvas.text(x + 15, _BOTTOM + 53, name, "small")
            x += 35 + 6 * len(name)
        return _BOTTOM + 66


def _ticks(low: float, high: float, *, binary: bool = False) -> list[float]:
    """About four round numbers from `low` to `high`; powers of two times such a number for bytes."""
    unit = 1024.0 ** max(floor(log10(max(high, 1)) / 3.0103), 0) if binary else 1.0
    raw = (high - low) / unit / 4
    power = 10.0 ** floor(log10(raw))
    step = next(s for s in (1, 2, 5, 10) if raw <= s * power) * power * unit
    first = -(-low // step)
    return [step * (first + i) for i in range(10) if step * (first + i) <= high]


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
