"""Times by name and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meta.pictures import Picture, bars
from meta.profiler.events import Event

HEADINGS = ("kind", "name", "calls", "total us", "own us", "own %", "line")


@dataclass(frozen=True, slots=True)
class Row:
    """The events of one kind, name and lines. microseconds: of all of them.  own: the same without the events
    inside."""

    kind: str
    name: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    calls: int
    microseconds: float
    own: float


def rows(events: Sequence[Event]) -> list[Row]:
    """One for every kind, name and lines, by their own time, the longest first."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Event]] = {}
    for event in events:
        groups.setdefault((event.kind, event.name, event.lines), []).append(event)
    summaries = [
        Row(kind, name, group[0].operators, lines, len(group), sum(e.duration for e in group) / 1e3,
            sum(e.own for e in group) / 1e3)
        for (kind, name, lines), group in groups.items()
    ]  # fmt: skip
    return sorted(summaries, key=lambda row: -row.own)


def cells(listed: Sequence[Row], limit: int | None) -> list[tuple[str, ...]]:
    """The texts of a table, with a last row for what `limit` leaves out. Shares are of the time without compilation."""
    whole = sum(row.own for row in listed if row.kind != "compile")
    head, rest = listed[:limit], listed[limit:] if limit is not None else ()
    out = [
        (row.kind, _name(row), str(row.calls), f"{row.microseconds:.1f}", f"{row.own:.1f}", _share([row], whole),
         _lines(row.lines))
        for row in head
    ]  # fmt: skip
    if rest:
        calls, own = sum(row.calls for row in rest), sum(row.own for row in rest)
        out.append(("", f"{len(rest)} more", str(calls), "", f"{own:.1f}", _share(rest, whole), ""))
    return out


def _share(listed: Sequence[Row], whole: float) -> str:
    own = sum(row.own for row in listed if row.kind != "compile")
    return f"{100 * own / whole:.1f}" if whole and own else ""


def chart(listed: Sequence[Row], limit: int) -> Picture:
    """The rows as bars of their own time, without compilations."""
    shown = [row for row in listed if row.kind != "compile"]
    whole = sum(row.own for row in shown) or 1.0
    labels = [" ".join(filter(None, (row.kind, _name(row), _lines(row.lines)))) for row in shown[:limit]]
    notes = [f"{row.own:.1f} us, {row.own / whole:.0%}" for row in shown[:limit]]
    values = [(label, row.own, note) for label, row, note in zip(labels, shown, notes, strict=False)]
    return bars(f"own time of {whole:.1f} us", values, ["\n".join([f"{r.calls} calls", *r.lines]) for r in shown])


def text(listed: Sequence[Row], limit: int | None) -> str:
    """The table as text."""
    table = [HEADINGS, *cells(listed, limit)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
    numbers = range(2, 6)
    return "\n".join(
        "  ".join(c.rjust(w) if i in numbers else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        .rstrip()
        for line in table
    )  # fmt: skip


def rich_table(listed: Sequence[Row], limit: int | None) -> Any:
    """The table as rich draws it."""
    from rich.table import Table

    table = Table()
    for i, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 2 <= i < 6 else "left")
    for line in cells(listed, limit):
        table.add_row(*line)
    return table


def _name(row: Row) -> str:
    max_operators = 4  # Operators of a kernel that a row shows.
    if not row.operators:
        return row.name
    names = [name.rpartition(".")[2] for name in row.operators]
    more = f" + {len(names) - max_operators} more" if len(names) > max_operators else ""
    return " + ".join(names[:max_operators]) + more


def _lines(lines: Sequence[str]) -> str:
    """The first line, its file without folders, and the number of the others."""
    if not lines:
        return ""
    more = f" +{len(lines) - 1}" if len(lines) > 1 else ""
    return Path(lines[0]).name + more
