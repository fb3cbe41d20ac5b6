"""`python -m benchmarks.tuning [--only NETWORK] [--seconds 60]`: training steps with tuned and untuned kernels.

Both steps have TVM's kernels alone, as programs in C do, and run alternately in this process. The clock is the time of
the processor where one thread runs the kernels (TVM_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import meta
from benchmarks.bert import MINI, Bert
from benchmarks.resnet import ResNet18
from benchmarks.train import machine, print_heading, print_row
from benchmarks.training_steps import MOMENTUM, RATE
from meta.deploy.tuning.timing import alternate, own_clock
from meta.optim.sgd import with_sgd

AIM, LIMIT = 0.95, 1.02
"""Tuned / untuned of one of the networks, and of each, at most."""
_ROUNDS: Final = 15


def _resnet() -> tuple[meta.Model, list[Any]]:
    generator = np.random.default_rng(0)
    return ResNet18(), [generator.standard_normal((4, 3, 32, 32)).astype(np.float32), generator.integers(0, 10, 4)]


def _bert() -> tuple[meta.Model, list[Any]]:
    sizes = dataclasses.replace(MINI, layers=2)
    generator, shape = np.random.default_rng(0), (8, sizes.tokens)
    tokens, targets = (generator.integers(0, sizes.vocabulary, shape) for _ in range(2))
    return Bert(sizes), [tokens, targets.ravel()]


NETWORKS: Mapping[str, Callable[[], tuple[meta.Model, list[Any]]]] = {"resnet18": _resnet, "bert-2": _bert}


def measure(network: str, seconds: float, path: Path) -> dict[str, Any]:
    """Milliseconds of a step, its first and its last loss, and the report of tuning. path: of the file of choices."""

    def step(tuning: Path | None) -> tuple[Any, list[Any]]:
        meta.random.seed(0)
        model, data = NETWORKS[network]()
        with meta.with_dialect("tvm"):
            train = with_sgd(RATE, MOMENTUM)(model, loss=meta.cross_entropy)
            return meta.vm.compile(train, tuning=tuning), [meta.array(x) for x in data]

    untuned, arrays = step(None)
    report = untuned.tune(*arrays, seconds=seconds)
    report.save(path)
    (untuned, arrays), (tuned, others) = step(None), step(path)
    losses = [float(run(*data).item()) for run, data in ((untuned, arrays), (tuned, others))]
    times = alternate([lambda: untuned(*arrays), lambda: tuned(*others)], _ROUNDS, own_clock())
    changed = sum(bool(k.choices) for k in report.kernels)
    return {"untuned": 1e3 * times[0], "tuned": 1e3 * times[1], "losses": losses, "report": str(report),
            "changed": changed}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if a ratio misses its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("--only", choices=sorted(NETWORKS), action="append")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the search, for each network")
    parser.add_argument("--verbose", action="store_true", help="print the reports")
    parser.add_argument("--json", type=Path, help="output file")
    options = parser.parse_args(argv)
    print(machine("cpu"), flush=True)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        for network in options.only or NETWORKS:
            results[network] = measure(network, options.seconds, Path(folder) / f"{network}.json")
            print(results[network]["report"] if options.verbose else f"{network} is tuned", file=sys.stderr)
    print_heading("training steps", ["network", "untuned, ms", "tuned, ms", "tuned / untuned", "kernels changed"])
    for network, row in results.items():
        ratio = row["tuned"] / row["untuned"]
        note = "" if ratio <= LIMIT else " **missed**"
        print_row([network, f"{row['untuned']:.1f}", f"{row['tuned']:.1f}", f"{ratio:.3f}{note}", str(row["changed"])])
    best = min(row["tuned"] / row["untuned"] for row in results.values())
    print(f"\nthe best ratio is {best:.3f} (at most {AIM:g} in one of them)")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
