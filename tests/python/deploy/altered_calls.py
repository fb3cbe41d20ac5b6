"""`python -m tests.python.deploy.altered_calls COUNT [--seed 1]`: programs as C that are called with altered arguments
and files, under address and undefined-behaviour sanitizers."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.deploy.machines import HOST, build, executor_of, write_program
from benchmarks.deploy.networks import NETWORKS
from tests.python.deploy.programs import CASES

PROGRAMS = {
    **{name: CASES[name] for name in ("open_batch", "stacked", "nested", "dropout")},
    "relay_step": NETWORKS["relay"].case("step"),
}  # fmt: skip
"""Open sizes, loops, random keys, and state that calls update."""


def run(count: int, seed: int) -> str:
    """Call so often; what went wrong, "" for nothing."""
    with TemporaryDirectory(prefix="meta-") as temporary:
        folder = Path(temporary)
        for name, case in PROGRAMS.items():
            write_program(folder, name, executor_of(case, None), case.calls[0])
        binary = build(folder, HOST, Path(__file__).with_suffix(".c"), list(PROGRAMS))
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}
        command = [str(binary), str(folder), str(count), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return "" if done.returncode == 0 else f"{done.stdout[-1000:]}{done.stderr[:4000]}" or str(done.returncode)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.python.deploy.altered_calls", description=__doc__)
    parser.add_argument("count", type=int, help="calls")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    problem = run(options.count, options.seed)
    sys.stdout.write(f"{problem or f'{options.count:,} calls returned results or codes'}\n")
    return int(bool(problem))


if __name__ == "__main__":
    raise SystemExit(main())
