"""Whether printed output is what a page shows. Kinds of text decide, not marks on the page.

Words and integers are compared exactly, white space is not. What differs between runs and machines:

- floats: equal within a thousandth, or 1e-5
- durations ("12.5 us"), addresses, digests, and lines of Python files: any
- sizes (before a unit of bytes, or with separators of thousands), and percentages: equal within a quarter, or 64 bytes,
  because the memory that kernels need depends on the processor
- paths: equal in the last component
- tables with a column of microseconds: the same rows in any order, with any numbers
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_DIGITS = r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?"
_NUMBER = rf"{_DIGITS}(?!\w)"
_TOKEN = re.compile(
    rf"""
    (?P<place>(?:[\w.~-]*/)*(?P<line>(?P<file>[\w<>-]+\.py)(?::\d+|",\ line\ \d+)))
    |(?P<path>(?:[\w.~-]*/)+(?P<last>[\w.<>-]*))
    |(?P<address>\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{{8,}}\b)
    |(?P<duration>{_DIGITS}\s*(?P<unit>us|ms|s|seconds|min)\b)
    |(?P<bytes>{_NUMBER}(?=\s+(?:bytes|[KMG]i?B)\b)|(?<![\w.])\d{{1,3}}(?:,\d{{3}})+(?!\w|\.\d))
    |(?P<percent>{_DIGITS}(?=\s?%))
    |(?P<number>{_NUMBER})
    |(?P<text>\w+|\S)
    """,
    re.X,
)
_KEPT = {"place": "file", "path": "last", "duration": "unit", "address": None}
"""What is compared of a kind of text: a group, or nothing."""
_TOLERANCES = {"bytes": (0.25, 64.0), "percent": (0.25, 0.1), "number": (1e-3, 1e-5)}
"""Relative and absolute tolerances by kinds of text."""
_TIMED = re.compile(r"^.*[a-z].*\bus\b(?!.*\d us\b)", re.M)


def matches(expected: str, printed: str, with_lines: bool = False) -> bool:
    """Whether a reader of `expected` sees it in `printed`, apart from what differs between runs and machines.

    with_lines: compare the lines of Python files as well. They change when a page's code does, for no other reason."""
    if _TIMED.search(expected):
        return _rows(expected) == _rows(printed)
    pages, runs = list(_tokens(expected, with_lines)), list(_tokens(printed, with_lines))
    return len(pages) == len(runs) and all(map(_equal, pages, runs))


def portable(printed: str) -> str:
    """Printed text without the folders of this machine."""
    return re.sub(r"(?:/[\w.~+-]+)+/site-packages/", "", printed).replace(f"{_ROOT}/", "")


def _tokens(text: str, with_lines: bool) -> Iterator[tuple[str, str]]:
    """(kind, what is compared) of each piece of a text."""
    for match in _TOKEN.finditer(text):
        kind = next(name for name in (*_KEPT, *_TOLERANCES, "text") if match[name] is not None)
        group = "line" if kind == "place" and with_lines else _KEPT.get(kind, kind)
        yield kind, "" if group is None else match[group]


def _equal(expected: tuple[str, str], printed: tuple[str, str]) -> bool:
    if expected == printed:
        return True
    tolerance = _TOLERANCES.get(expected[0])
    if tolerance is None or expected[0] != printed[0]:
        return False
    texts = [text.replace(",", "") for _, text in (expected, printed)]
    if expected[0] == "number" and any(text.lstrip("-").isdigit() for text in texts):
        return False
    relative, absolute = tolerance
    return math.isclose(*map(float, texts), rel_tol=relative, abs_tol=absolute)


def _rows(table: str) -> list[str]:
    """The rows of a table of times, without numbers, sorted: which row is slowest differs between runs."""
    return sorted(" ".join(re.sub(_NUMBER, "0", line).split()) for line in table.splitlines() if line.strip())
