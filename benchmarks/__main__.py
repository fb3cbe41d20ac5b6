"""`python -m benchmarks [--only GROUP] [--json FILE]`: run the benchmarks, print the table and write it as JSON."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import eager, startup, vm
from benchmarks.timing import Row

GROUPS = {"eager": eager.rows, "vm": vm.rows, "startup": startup.rows}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and save. Returns 0 even if a row misses its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=sorted(GROUPS), help="run one group of rows")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="output file")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    console = Console()
    rows: list[Row] = []
    for name, group in GROUPS.items():
        if options.only in (None, name):
            for row in group():
                rows.append(row)
                console.print(f"{row.name}: {row.measured:.3g}", highlight=False)
    console.print(_table(rows))
    options.json.write_text(json.dumps({"machine": _machine(), "rows": [r.to_json() for r in rows]}, indent=1) + "\n")
    console.print(f"written to {options.json}")
    return 0


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="one thread, medians, torch in the same process", title_justify="left")
    for heading in ("benchmark", "meta", "torch", "ratio or time", "target", ""):
        table.add_column(heading, justify="left" if heading in ("benchmark", "") else "right")
    for r in rows:
        reference = "" if r.reference is None else f"{r.reference:.2f} {r.unit}"
        measured = f"{r.measured:.2f} x" if r.reference is not None else f"{r.measured:.3f} s"
        limit = f"{r.limit} x" if r.reference is not None else f"{r.limit} s"
        table.add_row(r.name, f"{r.value:.2f} {r.unit}", reference, measured, limit, "holds" if r.holds else "MISSES")
    return table


def _machine() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in ("apache-tvm", "numpy", "torch")}
    return {"processor": platform.processor() or platform.machine(), "python": platform.python_version(), **packages}


if __name__ == "__main__":
    raise SystemExit(main())
