"""The tables of docs/deploy.md, from rows of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.deploy.machines import MACHINES
from benchmarks.deploy.networks import KINDS, NETWORKS

START, END = "<!-- rows of benchmarks.deploy -->\n", "<!-- end of the rows -->\n"
_SIZED: Final = "aarch64"
"""The machine whose sizes the page has."""
Rows = dict[tuple[str, str, str], dict[str, Any]]


def read(path: Path) -> Rows:
    """The newest row of each machine, network and kind."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {(row["machine"], row["network"], row["kind"]): row for row in rows}


def write(page: Path, rows: Rows) -> None:
    """Replace the tables of the page. Raises ValueError for a page without their place."""
    before, _, rest = page.read_text().partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page} has no lines {START.strip()} and {END.strip()}")
    text = f"{before}{START}\n{tables(rows)}\n{END}{after}"
    page.write_text(text)


def tables(rows: Rows) -> str:
    """Errors on all machines, and sizes on one."""
    errors = [
        (network, kind, *(_errors(rows.get((machine, network, kind))) for machine in MACHINES))
        for network in NETWORKS
        for kind in KINDS
    ]
    sizes = [
        (network, *(f"{row[column]:,}" for column in ("kernels", "program", "arena", "planned", "call")))
        for network in NETWORKS
        if (row := rows.get((_SIZED, network, "step")))
    ]
    return (
        "Relative errors; of steps, the largest one of the losses up to the 5th and the 50th:\n\n"
        f"{_table(('network', 'program', *MACHINES), errors)}\n"
        f"Bytes of training steps on {_SIZED}:\n\n"
        f"{_table(('network', 'kernels', 'program', 'arena', 'plan', 'arguments'), sizes)}"
    )


def _errors(row: dict[str, Any] | None) -> str:
    return ", ".join(_number(error) for error in row["errors"].values()) if row else ""


def _number(error: float) -> str:
    return f"{error:.0e}".replace("e-0", "e-") if error else "0"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
