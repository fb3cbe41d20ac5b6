"""`python -m benchmarks.pytorch [--device cuda] [--only PART]`: PyTorch's programs on meta.

Training steps by torch.compile(backend="meta") against the same step written in meta, eager torch and inductor, each
with SGD with momentum, which runs by torch except in meta's own step and in the function compiled as one program; their
first steps with empty caches, each in a new process; and how long exported programs take to import. Rows are printed as
they come.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.train import Run, against, machine, print_heading, print_row

NETWORKS = {"mlp": "MLP 64x784-256-256-10", "resnet18": "ResNet-18, 8x3x32x32", "bert-mini": "BERT-like, 8x64 tokens"}
IMPORTS = {"resnet50": "ResNet-50", "bert-base": "BERT-base"}
CONTENDERS = {
    "meta": "written in meta", "through": "torch.compile, meta", "eager": "eager", "compile": "inductor",
    "whole": "torch.compile, meta, one program",
}  # fmt: skip
STEP_LIMIT, FIRST_LIMIT, IMPORT_LIMIT = 1.05, 1.0, 1.0
"""Targets: the step over that written in meta, the first step over inductor's, seconds of an import."""


def import_exported(network: str) -> dict[str, float]:
    """Seconds in which torch exports a network and meta imports the program, in a process that has done neither."""
    import torch

    import meta
    from benchmarks.training_steps import NETWORKS as CASES

    module = CASES[network].theirs().eval()
    x = torch.from_numpy(CASES[network].data()[0][:1])
    start = time.perf_counter()
    program = torch.export.export(module, (x,))
    exported = time.perf_counter()
    meta.frontend.torch.from_exported(program)
    return {"export": exported - start, "import": time.perf_counter() - exported}


def steps(run: Run, network: str) -> Iterator[list[str]]:
    """The row of a network's training step."""
    arguments = {"network": network, "device": run.device, "half": False, "contenders": list(CONTENDERS)}
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        result = run.job("step", Path(folder), run.threads[0], **arguments, seconds=run.seconds)
    times = [result.get(name, {}).get("ms") for name in CONTENDERS]
    yield [NETWORKS[network], *map(_shown, times), *(against(times[i], times[0], STEP_LIMIT) for i in (1, 4))]


def first_steps(run: Run, network: str) -> Iterator[list[str]]:
    """The rows of a network's first steps with empty caches: seconds by the clock, and of processors."""
    results: list[dict[str, Any]] = []
    for name in CONTENDERS:
        with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
            result = run.job("step", Path(folder), run.threads[0], network=network, device=run.device, half=False,
                             contenders=[name], seconds=0.0)  # fmt: skip
        results.append(result.get(name, {}))
    for key, what in (("first", "elapsed"), ("first_processor", "of processors")):
        seconds: list[float | None] = [result.get(key) for result in results]
        yield [f"{NETWORKS[network]}, {what}", *map(_shown, seconds), against(seconds[1], seconds[3], FIRST_LIMIT)]


def imports(run: Run, network: str) -> Iterator[list[str]]:
    """The row of a network's import."""
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        result = run.job("import", Path(folder), run.threads[0], network=network)
    yield [IMPORTS[network], _shown(result.get("export")), _shown(result.get("import")), f"{IMPORT_LIMIT:g}"]


def _shown(value: float | None) -> str:
    return "failed" if value is None else f"{value:.2f}"


Rows = Callable[[Run], Iterator[list[str]]]


def parts() -> dict[str, tuple[str, list[str], dict[str, Rows]]]:
    """Name of a part -> its title, its heading, and the rows of each network."""
    names = list(CONTENDERS.values())
    return {
        "steps": ("Training steps, medians in ms", ["step", *names, "to the step in meta", "one program"],
                  {n: partial(steps, network=n) for n in NETWORKS}),
        "first": ("First steps without kernels on disk, s", ["step", *names, "to inductor"],
                  {n: partial(first_steps, network=n) for n in NETWORKS}),
        "imports": ("Import of exported programs, s", ["network", "torch.export", "from_exported", "at most"],
                    {n: partial(imports, network=n) for n in IMPORTS}),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if a row misses its target or fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch", description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=list(parts()), action="append")
    parser.add_argument("--network", action="append", help="measure only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of the interleaved steps of a row")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time")
    options = parser.parse_args(argv)
    run = Run(options.device, options.seconds, Path(), [1], time.monotonic() + 60 * options.minutes)
    print(machine(options.device), flush=True)
    for name, (title, heading, rows) in parts().items():
        if options.only and name not in options.only:
            continue
        print_heading(title, heading)
        for network, make in rows.items():
            if not options.network or network in options.network:
                for row in make(run):
                    print_row(row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
