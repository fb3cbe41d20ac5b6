"""Text for terminals: wrapped to their width, without breaking names and `file:line`, and in colours."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

_STYLES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32}


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


def styled(text: str, style: str, file: TextIO | None = None) -> str:
    """`text` in a style if `file`, by default standard output, is a terminal and NO_COLOR is not set."""
    is_terminal = (file or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"
    return f"\033[{_STYLES[style]}m{text}\033[0m" if is_terminal and not os.environ.get("NO_COLOR") else text


def beside(left: str, right: str | None, style: str = "") -> str:
    """`left`, in a style, and `right`, dimmed, at the end of its last line, or on the next line if both do not fit."""
    lines = left.split("\n")
    shown = "\n".join(styled(line, style) for line in lines) if style else left
    if not right:
        return shown
    space = width() - len(lines[-1]) - len(right)
    dimmed = styled(right, "dim")
    return f"{shown}{' ' * space}{dimmed}" if space >= 2 else f"{shown}\n{' ' * (width() - len(right))}{dimmed}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their longest entry. Where they do not fit the terminal, long entries of the first column are
    on lines of their own."""
    lines = [head, *rows]
    first, *rest = (max(map(len, column)) for column in zip(*lines, strict=True))
    gap = "  " if first + sum(rest) + 2 * len(rest) <= width() else " "
    room = width() - sum(rest) - len(gap) * len(rest)
    first = first if room < 8 else min(first, room)
    out: list[str] = []
    for index, (name, *cells) in enumerate(lines):
        if len(name) > first:
            out.append(name)
        shown = "" if len(name) > first else name
        line = gap.join(map(str.ljust, [shown, *cells], [first, *rest])).rstrip()
        out.append(styled(line, "bold") if index == 0 and line else line)
    return "\n".join(out)
