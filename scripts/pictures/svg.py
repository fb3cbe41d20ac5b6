"""Drawings with the colours of the site.

A drawing has the colours of the page that it is part of (the variables of the theme furo), and as a file by itself
light or dark ones, as the reader's system prefers. Its classes have the prefix `p-`, because the page has others.
"""

from __future__ import annotations

from meta.pictures import Canvas

_COLOURS = (
    # class, property, variable of the theme, light, dark
    ("text", "fill", "--color-foreground-primary", "#1f2328", "#e6edf3"),
    ("note", "fill", "--color-foreground-secondary", "#59636e", "#9198a1"),
    ("box", "fill", "--color-background-secondary", "#f6f8fa", "#161b22"),
    ("frame", "stroke", "--color-foreground-muted", "#818b98", "#7d8590"),
    ("line", "stroke", "--color-foreground-muted", "#818b98", "#7d8590"),
    ("tip", "fill", "--color-foreground-muted", "#818b98", "#7d8590"),
    # The theme has no such variables; docs/conf.py defines them.
    ("good", "fill", "--picture-good", "#2f6fbb", "#6cb0ff"),
    ("bad", "fill", "--picture-bad", "#c2571a", "#ff9e64"),
    ("curve", "stroke", "--picture-curve", "#2f6fbb", "#6cb0ff"),
)
_LIGHT, _DARK = 3, 4
TEXT, NOTE, SMALL, HEADING = "p-text", "p-note", "p-note p-small", "p-text p-heading"
"""Styles of texts."""
FRAME = "p-box p-frame"
"""The style of a box with an outline."""


def _rules(column: int) -> str:
    return "".join(f".p-{row[0]}{{{row[1]}:var({row[2]},{row[column]})}}" for row in _COLOURS)


class Drawing(Canvas):
    """A canvas with the site's styles: of texts, FRAME, p-good and p-bad for boxes, p-line and p-curve."""

    sheet = (
        f"{_rules(_LIGHT)}.p-line,.p-curve{{fill:none}}.p-curve{{stroke-width:2}}.p-small{{font-size:13px}}"
        f".p-heading{{font-size:15px}}@media(prefers-color-scheme:dark){{{_rules(_DARK)}}}"
    )
    attributes = ' style="max-width:100%;height:auto;font:14px system-ui,sans-serif"'
    shows_title = False

    def arrow(self, x: float, y0: float, y1: float) -> None:
        """An arrow down."""
        self.line([(x, y0), (x, y1)], "p-line")
        self.path(f"M{x:g} {y1:g}l-4 -7h8z", "p-tip")


def theme_variables(is_dark: bool) -> dict[str, str]:
    """The colours that the theme lacks, by the names of their variables."""
    own = [row for row in _COLOURS if row[2].startswith("--picture-")]
    return {row[2].removeprefix("--"): row[_DARK if is_dark else _LIGHT] for row in own}
