"""meta/_generated/limits.py: the numbers of limits.toml as constants, which take no time to read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, cast

from meta.op.registry import Op
from scripts.src_codegen.layout import header

PATH = Path(__file__).resolve().parents[2] / "meta" / "op" / "limits.toml"
_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of limits.toml.

    key: the first item of the row's line: the name of a constant, or the operators of a limit of dispatch as text.
    value: a number or several; of a limit of dispatch the least and the most amount of work, `inf` for no bound.
    dialect, device: of a limit of dispatch, else "".
    """

    key: str
    value: Any
    unit: str
    machine: str
    date: str
    benchmark: str
    dialect: str = ""
    device: str = ""
    feature: str = ""
    in_programs: bool = False


def rows() -> Iterator[Row]:
    """The rows of limits.toml in their order."""
    tables = _toml.loads(PATH.read_text(encoding="utf-8"))
    for dialect, by_device in tables.pop("dispatch").items():
        for device, limits in by_device.items():
            for operators, unit, ends, machine, date, benchmark, *conditions in limits:
                row = Row(operators, ends, unit, machine, str(date), benchmark, dialect, device)
                yield replace(row, **conditions[0]) if conditions else row
    for name, (value, unit, machine, date, benchmark) in tables.items():
        yield Row(
            name,
            tuple(cast(list[int], value)) if isinstance(value, list) else value,
            unit,
            machine,
            str(date),
            benchmark,
        )


def render(ops: Sequence[Op]) -> str:
    del ops
    lines = [
        header("Measured limits: the numbers of meta/op/limits.toml, which says what they mean.", "limits.toml"),
        "\n",
    ]
    dispatch = ["\nDISPATCH = (\n"]
    for row in rows():
        if row.dialect:
            dispatch.append(f"    {_limit(row)},\n")
        else:
            lines.append(f"{row.key.upper()} = {row.value}\n")
    return "".join([*lines, *dispatch, ")\n"])


def _limit(row: Row) -> tuple[Any, ...]:
    """The fields of a meta.op.work.Limit."""
    least, most = row.value
    measured = f"{row.machine}, {row.date}"
    fields = (row.dialect, row.device, row.key, row.unit, least, None if most == inf else most, measured)
    return (*fields, row.feature, row.in_programs)
