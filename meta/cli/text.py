"""Text for terminals: wrapped to their width, without breaking names and `file:line`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence


def width() -> int:
    """The columns of the terminal, 80 without one."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def wrapped(text: str, indent: int = 0, hanging: int = 0) -> str:
    """`text` wrapped to the terminal, all lines indented, and those after the first by `hanging` more."""
    pad = " " * indent
    lines = textwrap.wrap(
        text, width(), initial_indent=pad, subsequent_indent=pad + " " * hanging,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


def beside(left: str, right: str | None) -> str:
    """`left`, and `right` at the end of its last line, or on the next line if both do not fit."""
    if not right:
        return left
    last = left.rsplit("\n", 1)[-1]
    space = width() - len(last) - len(right)
    return f"{left}{' ' * space}{right}" if space >= 2 else f"{left}\n{right:>{width()}}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their longest entry."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
