"""Call every operator that has attributes which are numbers with many values of each, and print how memory grows.

    python -m scripts.soak --calls 100000

`--values 100000` makes as many calls as give each number 100,000 values. Every call has a new
value. A table shows, after each tenth of the calls, the resident memory of the process, the kernels in memory and the
kernels that were built or loaded. The exit status is 1 if one of them grew after the first tenth: memory by more than
`--allowed` MiB, kernels at all.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import meta
from meta.backend.tvm import kernel
from meta.eager.call import invoke, state
from meta.testing.generic import make_call
from tests.python.op.samples import first_rows, samples

KINDS = ("Float", "Number", "NumberOrSize")
SIZES: dict[str, Callable[[int], Any]] = {
    "arange": meta.arange,
    "linspace": lambda n: meta.linspace(0.0, 1.0, n),
    "one_hot": lambda n: meta.one_hot(meta.array([0, 1]), n),
    "topk": lambda n: meta.topk(meta.ones((4000,)), n % 4000),
    "full": lambda n: meta.full((n, 2), 0.5),
    "tril": lambda n: meta.tril(meta.ones((3, 3)), n),
    "repeat": lambda n: meta.repeat(meta.ones((3,)), n),
    "embedding_dx": lambda n: meta.embedding_dx(meta.ones((2, 3)), meta.array([0, 1]), n),
}
"""Calls with a size or an int."""


def attribute_calls() -> Iterator[Callable[[float], Any]]:
    """For each number among the attributes of an operator, its first sample with another value, in (0, 1)."""
    for row in (row for row in samples() if row in first_rows()):
        arguments = make_call(row, row.run_dtypes(())[0]).to_meta().bound_arguments()
        for i, arg in enumerate(row.operator.schema.args):
            if arg.type.role == "attr" and arg.type.name.removesuffix("?") in KINDS:
                yield _with_value(row.operator, arguments, i)


def _with_value(op: Any, arguments: tuple[Any, ...], position: int) -> Callable[[float], Any]:
    return lambda value: invoke(state(op), *arguments[:position], value, *arguments[position + 1 :])


def resident_mebibytes() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--values", type=int, help="values of each number, in place of --calls")
    parser.add_argument("--allowed", type=float, default=16.0, help="MiB by which memory may grow")
    options = parser.parse_args()
    added = count()
    add = kernel._add  # pyright: ignore[reportPrivateUsage]

    def count_and_add(key: Any, compiled: kernel.Compiled) -> None:
        next(added)
        add(key, compiled)

    kernel._add = count_and_add  # pyright: ignore[reportPrivateUsage]
    attributes = [*attribute_calls()]
    by_value, by_size = cycle(attributes), cycle(SIZES.values())
    calls = options.calls if options.values is None else -(-options.values * len(attributes) * 8 // 7)
    tenth = max(calls // 10, 1)
    measured: list[tuple[float, int]] = []
    print(f"{'calls':>8} {'MiB':>8} {'built or loaded':>16}")
    with meta.with_dialect("tvm"):
        for n in range(1, calls + 1):
            if n % 8:
                next(by_value)(0.2 + 0.5 * n / calls)
            else:
                next(by_size)(2 + n // 8 % 5000)
            if n % tenth == 0:
                gc.collect()
                built = int(repr(added)[6:-1])
                measured.append((resident_mebibytes(), built))
                print(f"{n:8} {measured[-1][0]:8.1f} {built:16}", flush=True)
    (memory, built), (last_memory, last_built) = measured[0], measured[-1]
    return int(last_memory - memory > options.allowed or last_built > built)


if __name__ == "__main__":
    sys.exit(main())
