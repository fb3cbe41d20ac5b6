"""`python -m benchmarks.first_steps [--device cuda] [--only NETWORK]`: where the time of meta's first steps goes.

Each step runs in two new processes, the first with an empty cache of compiled kernels and the second with what the
first one left there. Rows are the stages of compilation (see `meta.progress.timed_stages`), in seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.train import COLD_LIMIT, STEPS, WARM_LIMIT, Run, brief, machine, print_heading, print_row


def measure(run: Run, network: str, half: bool) -> dict[str, Any]:
    """The first step with an empty cache ("cold") and with kernels on disk ("warm"), or {"error": ...}."""
    arguments = {"network": network, "device": run.device, "half": half, "contenders": ["meta"]}
    threads = None if run.device == "cuda" else run.threads[0]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        for name in ("cold", "warm"):
            result = run.job("step", Path(folder), threads, **arguments, seconds=run.seconds)
            results[name] = result.get("meta", result)
            if "error" in results[name]:
                return results[name]
    return results


def print_table(title: str, results: Mapping[str, Any]) -> None:
    """The stages of a network, slowest first with an empty cache, and their sums."""
    cold, warm = (results[name]["stages"] for name in ("cold", "warm"))
    print_heading(title, ["stage", "no kernels on disk, s", "kernels on disk, s"])
    for stage in sorted({**cold, **warm}, key=lambda s: -cold.get(s, 0.0)):
        print_row([stage, f"{cold.get(stage, 0.0):.2f}", f"{warm.get(stage, 0.0):.2f}"])
    first = [results[name]["first"] for name in ("cold", "warm")]
    print_row(["first step", *map(_limited, first, (COLD_LIMIT, WARM_LIMIT))])
    print_row(["loss", *(f"{results[name]['loss']:.6f}" for name in ("cold", "warm"))])
    print_row(["later steps, ms", *(f"{results[name]['ms']:.2f}" for name in ("cold", "warm"))])


def _limited(seconds: float, limit: float) -> str:
    return f"{seconds:.2f} (at most {limit:g})" + ("" if seconds <= limit else " **missed**")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_steps", description=__doc__)
    parser.add_argument("--device", choices=sorted(STEPS), default="cpu")
    parser.add_argument("--only", action="append", metavar="NETWORK", help="; ".join(
        f"{device}: {', '.join(networks)}" for device, networks in STEPS.items()))  # fmt: skip
    parser.add_argument("--seconds", type=float, default=1.0, help="time of the later steps")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after this time")
    parser.add_argument("--json", type=Path, help="output file")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if a step misses its target or fails, 2 for an unknown network."""
    options = _parser().parse_args(argv)
    titles = STEPS[options.device]
    unknown = sorted(set(options.only or ()) - set(titles))
    if unknown:
        print(f"there is no network {', '.join(unknown)} on {options.device}; expected {', '.join(titles)}",
              file=sys.stderr)  # fmt: skip
        return 2
    run = Run(options.device, options.seconds, Path(), [1], time.monotonic() + 60 * options.minutes)
    print(machine(options.device), flush=True)
    for network in options.only or titles:
        for half in (False, True) if options.device == "cuda" else (False,):
            title = f"{titles[network]}, {'bfloat16 by AMP' if half else 'float32'}"
            results = measure(run, network, half)
            if "error" in results:
                print(f"\n{title}: failed: {brief(results['error'])}", flush=True)
            else:
                print_table(title, results)
            if options.json is not None:
                options.json.write_text(json.dumps(run.results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
