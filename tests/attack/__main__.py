"""The command line; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tests.attack
from tests.attack.workers import attack, environment, outcome, saved_runs, table, texts

COUNTS = {
    "calls": 20_000,
    "schemas": 20_000,
    "files": 50_000,
    "pt2": 3_000,
    "onnx": 8_000,
    "relax": 8_000,
    "checkpoints": 1_000,
    "hostile": 200,
    "programs": 200,
    "mixed": 200,
    "positions": 100,
    "cache": 12,
    "concurrency": 9,
    "soak": 4,
}
"""The attacks, with the cases of a bounded run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.attack", description=(tests.attack.__doc__ or "").split("\n", 1)[0])
    parser.add_argument("attacks", nargs="*", metavar="attack", help=f"of {', '.join(COUNTS)}; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="cases of each attack")
    parser.add_argument("--seconds", type=float, default=86400.0, help="the longest that each attack takes")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one case may take")
    parser.add_argument("--case", type=int, help="run only this case, in this process")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="add each run to this folder")
    parser.add_argument(
        "--merge", type=Path, metavar="FOLDER", help="print the runs of this folder together; run nothing"
    )
    parser.add_argument("--compact", action="store_true", help="print no texts of findings")
    options = parser.parse_args()
    names: list[str] = options.attacks or list(COUNTS)
    if unknown := [name for name in names if name not in COUNTS]:
        parser.error(f"no attack is called {unknown[0]}")
    environment()
    if options.case is not None:
        problem = outcome(names[0], options.seed, options.case)
        print(problem or "nothing wrong")
        return bool(problem)
    runs = saved_runs(options.merge) if options.merge else []
    for name in () if options.merge else names:
        count = options.count or COUNTS[name]
        run = attack(name, options.seed, count, options.seconds, options.processes, options.limit)
        runs.append(run)
        if options.save:
            run.save(options.save)
    print("\n".join([*table(runs), *(() if options.compact else texts(runs))]))
    return int(any(run.findings for run in runs))


if __name__ == "__main__":
    sys.exit(main())
