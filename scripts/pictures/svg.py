"""SVG elements with the colours of the site.

A picture has the colours of the page that it is part of (the variables of the theme furo), and as a file by itself
light or dark ones, as the reader's system prefers.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

_COLOURS = (
    # class, property, variable of the theme, light, dark
    ("text", "fill", "--color-foreground-primary", "#1f2328", "#e6edf3"),
    ("note", "fill", "--color-foreground-secondary", "#59636e", "#9198a1"),
    ("box", "fill", "--color-background-secondary", "#f6f8fa", "#161b22"),
    ("line", "stroke", "--color-foreground-muted", "#818b98", "#7d8590"),
    ("tip", "fill", "--color-foreground-muted", "#818b98", "#7d8590"),
)
_FIXED = (
    # class, property, light, dark: the theme has no such variables
    ("good", "fill", "#2f6fbb", "#6cb0ff"),
    ("bad", "fill", "#c2571a", "#ff9e64"),
    ("curve", "stroke", "#2f6fbb", "#6cb0ff"),
)
FONT, SMALL = 14, 13


def text(x: float, y: float, content: str, kind: str = "text", anchor: str = "start", size: float = FONT) -> str:
    """A line of text. kind: "text" or "note"."""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}"'
    return f'<text class="p-{kind}" {place}>{escape(content)}</text>'


def rectangle(x: float, y: float, width: float, height: float, kind: str, radius: float = 2) -> str:
    """A filled rectangle. kind: "box", with an outline, "good" or "bad"."""
    outline = " p-line" if kind == "box" else ""
    return (
        f'<rect class="p-{kind}{outline}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
    )


def polyline(points: Iterable[tuple[float, float]], kind: str = "line", arrow: bool = False) -> str:
    """A line through points. kind: "line" or "curve"."""
    coordinates = list(points)
    drawn = " ".join(f"{x:g},{y:g}" for x, y in coordinates)
    line = f'<polyline class="p-{kind}" fill="none" stroke-width="{1 if kind == "line" else 2}" points="{drawn}"/>'
    return line + _tip(*coordinates[-2:]) if arrow else line


def _tip(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x0, y0), (x, y) = start, end
    dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
    corners = ((x, y), (x - 7 * dx - 4 * dy, y - 7 * dy - 4 * dx), (x - 7 * dx + 4 * dy, y - 7 * dy + 4 * dx))
    return f'<polygon class="p-tip" points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}"/>'


def picture(title: str, width: float, height: float, elements: Iterable[str]) -> str:
    """The text of an SVG file."""
    light = "".join(f".p-{k}{{{p}:var({v},{a})}}" for k, p, v, a, _ in _COLOURS)
    light += "".join(f".p-{k}{{{p}:var(--picture-{k},{a})}}" for k, p, a, _ in _FIXED)
    dark = "".join(f".p-{k}{{{p}:var({v},{b})}}" for k, p, v, _, b in _COLOURS)
    dark += "".join(f".p-{k}{{{p}:var(--picture-{k},{b})}}" for k, p, _, b in _FIXED)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'style="max-width:100%;height:auto;font-family:system-ui,sans-serif">'
    )
    style = f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    return "\n".join((head, f"<title>{escape(title)}</title>", style, *elements, "</svg>")) + "\n"


def fixed_colours(is_dark: bool) -> dict[str, str]:
    """The colours that the theme lacks, by the names of their variables."""
    return {f"picture-{kind}": dark if is_dark else light for kind, _, light, dark in _FIXED}
