"""`python -m benchmarks.deploy [--machines NAMES] [--networks NAMES] [--steps 50] [--json FILE]`: networks as C on
emulated machines against this machine, compiled for a processor without special instructions. Returns 1 if a row misses
its limit. `--times`: on this machine, calls through C against the executor, and two threads against torch's."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.deploy import page, rows
from benchmarks.deploy.machines import MACHINES
from benchmarks.deploy.networks import KINDS, NETWORKS


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deploy", description=__doc__)
    parser.add_argument("--machines", nargs="*", choices=sorted(MACHINES), default=list(MACHINES))
    parser.add_argument("--networks", nargs="*", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--steps", type=int, default=50, help="calls of training steps (default: 50)")
    parser.add_argument("--seconds", type=float, default=3600, help="a limit for a program (default: 3600)")
    parser.add_argument("--times", action="store_true", help="measure on this machine instead")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages of compilers and emulators")
    parser.add_argument("--json", type=Path, help="a file that rows are added to")
    parser.add_argument("--page", type=Path, help="docs/deploy.md, whose tables are written from the file of --json")
    options = parser.parse_args(argv)
    if options.packages:
        packages = {name for m in MACHINES.values() for name in f"{m.tools.package} {m.package}".split()}
        print(*sorted(packages))
        return 0
    if options.times:
        from benchmarks.deploy import times  # with torch

        return times.main()
    missing = {name: MACHINES[name].missing for name in options.machines}
    for name, reason in missing.items():
        if reason:
            print(f"{name:8} {reason}")
    misses = 0
    present = [name for name, reason in missing.items() if not reason]
    for row in rows.rows(present, options.networks, options.kinds, steps=options.steps, seconds=options.seconds):
        print(row, flush=True)
        misses += not row.holds
        if options.json:
            with options.json.open("a") as file:
                print(json.dumps(asdict(row)), file=file)
    if options.page and options.json:
        page.write(options.page, page.read(options.json))
    return int(misses > 0)


if __name__ == "__main__":
    raise SystemExit(main())
