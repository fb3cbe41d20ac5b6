"""Charts from the tables of Markdown pages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from scripts.pictures.examples import runs
from scripts.pictures.svg import HEADING, NOTE, SMALL, TEXT, Drawing

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = ROOT / "docs" / "measurements"
_WIDTH = 520
_HEADING, _ROW = 32, 34


def table(page: Path, header: str) -> list[dict[str, str]]:
    """The rows of a page's first table whose header begins with `header`, by names of columns."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {header}"))
    names = _cells(lines[start])
    rows: list[dict[str, str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, _cells(line), strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]


def number(cell: str) -> float:
    """The geometric mean of the numbers in a cell."""
    numbers = [float(match) for match in re.findall(r"\d+(?:\.\d+)?", cell)]
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Ratios of times as bars from 1, on a logarithmic axis: to the left is faster, to the right slower."""
    ratios = [ratio for _, rows in groups for _, ratio in rows]
    low, high = min(*ratios, 0.5) * 0.9, max(*ratios, 2.0)
    left, right = 8, _WIDTH - 56

    def x(ratio: float) -> float:
        return left + (right - left) * math.log(ratio / low) / math.log(high / low)

    canvas, y = Drawing(), 18.0
    axis = y - 14 + sum(_HEADING + _ROW * len(rows) for _, rows in groups)
    canvas.line([(x(1.0), 24), (x(1.0), axis)], "p-line")
    for name, rows in groups:
        canvas.text(left, y, name, HEADING)
        for i, (label, ratio) in enumerate(rows):
            top = y + 8 + i * _ROW
            start, end = sorted((x(1), x(ratio)))
            canvas.text(left, top + 12, label, NOTE)
            canvas.box(start, top + 17, max(end - start, 1), 10, "p-good" if ratio <= 1 else "p-bad", radius=2)
            canvas.text(_WIDTH - 8, top + 26, f"{ratio:.2f}", TEXT, "end")
        y += _HEADING + _ROW * len(rows)
    for tick in (0.03, 0.1, 0.25, 0.5, 1.0, 2.0):
        if low <= tick <= high:
            canvas.text(x(tick), axis + 16, f"{tick:g}", SMALL, "middle")
    canvas.text(left, axis + 34, "time of meta / time of torch; left of 1: meta is faster", SMALL)
    return canvas.picture(_WIDTH, axis + 44, title)


def losses(name: str) -> str:
    """The losses of an example's recorded run over its steps."""
    values = runs()[name]["losses"]
    low, high = min(values), max(values)
    left, right, top, bottom = 48.0, _WIDTH - 12.0, 12.0, 180.0

    def point(i: int, value: float) -> tuple[float, float]:
        x = left + (right - left) * i / (len(values) - 1)
        return round(x, 1), round(bottom - (bottom - top) * (value - low) / (high - low), 1)

    canvas = Drawing()
    canvas.line([(left, top), (left, bottom), (right, bottom)], "p-line")
    canvas.line([point(i, value) for i, value in enumerate(values)], "p-curve")
    for value in (low, high):
        canvas.text(left - 6, point(0, value)[1] + 4, f"{value:.2g}", SMALL, "end")
    canvas.text(left, bottom + 18, "step 1", SMALL)
    canvas.text(right, bottom + 18, f"{len(values)}", SMALL, "end")
    return canvas.picture(_WIDTH, bottom + 28, f"The loss of the example {name}")


def ratios() -> str:
    """meta against torch: eager calls, small programs, whole training steps."""
    eager, programs = list[tuple[str, float]](), list[tuple[str, float]]()
    for row in table(MEASUREMENTS / "eager-and-programs.md", "benchmark: meta / torch"):
        name = row["benchmark: meta / torch"]
        (programs if name.startswith("VM, ") else eager).append(
            (re.sub("^(VM,|eager) ", "", name), number(row["EPYC"].partition("(")[0]))
        )
    steps = [
        (row["step"], number(row["meta / best"]))
        for row in table(MEASUREMENTS / "training.md", "step | meta | torch eager")
    ]
    groups = [("Eager calls", eager), ("Programs on a CPU", programs), ("Training steps on a GPU", steps)]
    return bars("Times of meta divided by times of torch", groups)


def training() -> str:
    """Training steps against the faster of eager torch and torch.compile."""
    page = MEASUREMENTS / "training.md"
    gpu = [(row["step"], number(row["meta / best"])) for row in table(page, "step | meta | torch eager")]
    groups = [("NVIDIA H200", gpu)]
    for processor, other in (("Xeon", "torch"), ("EPYC", "meta")):
        rows = table(page, f"training step | threads | meta | {other}")
        names = [f"{row['training step']}, {row['threads']} of 2 cores" for row in rows]
        ratios = [number(row["meta / best"].partition("(")[0]) for row in rows]
        groups.append((processor, list(zip(names, ratios, strict=True))))
    return bars("Training steps of meta against the faster of eager torch and torch.compile", groups)
