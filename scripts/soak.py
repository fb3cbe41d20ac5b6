"""Call operators with many different values of each attribute that is a number, and print how memory grows.

    python -m scripts.soak --values 100000

For every such attribute, this calls the operator on its first sample with a new value each time. Ints have ranges of
their own (`WHOLE`). A line for each attribute shows the calls that were made, the kernels that were built or loaded
after the first tenth of them, and by how much the resident memory of the process grew in the others. The exit status is
1 if one attribute built kernels there, or if memory grew by more than `--allowed` MiB from the first attribute to the
last. `--part 2/3` takes every third attribute, from the second, `--of sizes optimizers` those of these kinds, and
`--compiled 1000` adds attributes whose values are compiled in, of which the bound on kernels in memory has to keep
memory flat.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import meta
from meta.backend.tvm import kernel
from meta.eager.call import invoke, state
from meta.testing.generic import make_call
from tests.python.op.samples import first_rows, samples

KINDS = ("Float", "Number", "NumberOrSize", "FillValue")
KINDS_OF_NUMBERS = ("floats", "optimizers", "sizes")
MEGA = 1 << 20
RUNNERS = 40_000
"""Calls that fill the tables of prepared calls."""

Call = Callable[[int], Any]
"""The call with value number n, counted from 0."""


def _whole() -> dict[str, Call]:
    x, rows = meta.ones((3, 3)), meta.array([0, 1])
    scores, boxes = meta.ones((1, 4)), meta.array([[[0.0, 0, 1, 1]] * 4])
    key = meta.array([1, 2])
    long, matrix, logits = meta.ones((4000,)), meta.ones((2, 3)), meta.ones((2, 5))
    return {
        "arange.stop (int)": meta.arange,
        "arange.start (int)": lambda n: meta.arange(n, n + 3),
        "linspace.num": lambda n: meta.linspace(0.0, 1.0, n),
        "eye.n": lambda n: meta.eye(n, 2),
        "eye.m": lambda n: meta.eye(2, n),
        "one_hot.depth": lambda n: meta.one_hot(rows, n),
        "topk.k (to 4000)": lambda n: meta.topk(long, n % 4000 + 1),
        "full.shape": lambda n: meta.full((n, 2), 0.5),
        "zeros.shape": lambda n: meta.zeros((2, n)),
        "uniform.shape": lambda n: meta.uniform(key, (n,)),
        "full.fill_value (int)": lambda n: meta.full((3,), n, dtype="int64"),
        "tril.k": lambda n: meta.tril(x, n - 50_000),
        "triu.k": lambda n: meta.triu(x, n - 50_000),
        "repeat.repeats": lambda n: meta.repeat(rows, n),
        "tile.reps": lambda n: meta.tile(rows, (n,)),
        "roll.shift": lambda n: meta.roll(x, (n, -n), (0, 1)),
        "pad.pad_width": lambda n: meta.pad(rows, ((n, 1),)),
        "broadcast_to.shape": lambda n: meta.broadcast_to(rows, (n, 2)),
        "strided_slice.begin": lambda n: meta.strided_slice(x, (n - 50_000,), (n,)),
        "embedding_dx.num_weight": lambda n: meta.embedding_dx(matrix, rows, n + 2),
        "take_dx.shape": lambda n: meta.take_dx(matrix, rows, (n + 2, 3), 0),
        "resize1d.size": lambda n: meta.resize1d(meta.ones((1, 1, 4)), (n + 1,)),
        "cross_entropy.ignore_index": lambda n: meta.cross_entropy(logits, rows, ignore_index=n + 7),
        "var.correction": lambda n: meta.var(x, correction=n),
        "randint.high": lambda n: meta.randint(key, (3,), 0, n + 1),
        "non_max_suppression.max_size": lambda n: meta.non_max_suppression(boxes, scores, 0.5, max_size=n),
        "sizes of operands": lambda n: meta.tanh(meta.ones((n, 1))) + 1.0,
    }


def _optimizer(name: str, attribute: str) -> Call:
    """A step of an optimiser with another value of one number."""
    states = {"sgd": 1, "adam": 2, "amsgrad": 3, "adagrad": 1, "rmsprop": 2, "rmsprop_centered": 3}[name]
    arrays = [meta.ones((3,)) for _ in range(2 + states)]
    fixed = {"step": 3, "learning_rate": 0.1} if name in ("adam", "amsgrad") else {"learning_rate": 0.1}
    step = getattr(meta, name)
    return lambda n: step(*arrays, **{**fixed, attribute: 0.2 + n * 5e-6})


OPTIMIZERS = {
    "sgd": ("learning_rate", "momentum", "weight_decay"),
    "adam": ("learning_rate", "beta1", "beta2", "eps", "weight_decay"),
    "amsgrad": ("beta1", "weight_decay"),
    "adagrad": ("eps", "weight_decay"),
    "rmsprop": ("alpha", "momentum", "weight_decay"),
    "rmsprop_centered": ("alpha", "eps"),
}


def calls(kinds: Sequence[str]) -> Iterator[tuple[str, Call]]:
    """Numbers among the attributes of operators, with their calls. kinds: among "floats", "optimizers" and "sizes"."""
    groups = {"floats": _floats, "optimizers": _optimizers, "sizes": lambda: _whole().items()}
    return chain.from_iterable(group() for kind, group in groups.items() if kind in kinds)


def _floats() -> Iterator[tuple[str, Call]]:
    for row in (row for row in samples() if row in first_rows()):
        for i, arg in enumerate(row.operator.schema.args):
            if arg.type.role == "attr" and arg.type.name.removesuffix("?") in KINDS:
                arguments = make_call(row, row.run_dtypes(())[0]).to_meta().bound_arguments()
                yield f"{row.op}.{arg.name}", _with_value(row.operator, arguments, i)


def _optimizers() -> Iterator[tuple[str, Call]]:
    for name, attributes in OPTIMIZERS.items():
        for attribute in attributes:
            yield f"{name}.{attribute}", _optimizer(name, attribute)


def _with_value(op: Any, arguments: tuple[Any, ...], i: int) -> Call:
    return lambda n: invoke(state(op), *arguments[:i], 0.2 + n * 5e-6, *arguments[i + 1 :])


def compiled_calls() -> Iterator[tuple[str, Call]]:
    """Attributes whose values are compiled in."""
    x = meta.ones((1, 1, 4))
    yield "max_pool1d.kernel (compiled in)", lambda n: meta.max_pool1d(meta.ones((1, 1, n + 1)), (n + 1,))
    yield "conv1d.padding (compiled in)", lambda n: meta.conv1d(x, x, padding=(n,))


def resident_mebibytes() -> float:
    """The resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGA


def _count_kernels() -> Callable[[], int]:
    """A function that returns how many kernels have come into memory."""
    added = count()
    add = kernel._add

    def count_and_add(key: Any, compiled: kernel.Compiled) -> None:
        next(added)
        add(key, compiled)

    kernel._add = count_and_add
    return lambda: int(repr(added)[6:-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=1000, help="of each attribute")
    parser.add_argument("--compiled", type=int, default=0, help="values of attributes that are compiled in")
    parser.add_argument("--allowed", type=float, default=16.0, help="MiB by which memory may grow")
    parser.add_argument("--part", default="1/1", help="1/2 takes every second attribute, from the first")
    parser.add_argument("--of", nargs="+", default=KINDS_OF_NUMBERS, choices=KINDS_OF_NUMBERS, help="which attributes")
    options = parser.parse_args()
    first, parts = map(int, options.part.split("/"))
    kernels = _count_kernels()
    with meta.with_dialect("tvm"):
        counted = [(name, call, options.values) for name, call in calls(options.of)][first - 1 :: parts]
        for n in range(min(RUNNERS, 40 * options.values)):  # in which memory grows
            counted[n % len(counted)][1](n // len(counted))
        gc.collect()
        gc.freeze()  # collections of what is in memory by now would take most of the time
        start, built, total = resident_mebibytes(), 0, 0
        print(f"{'attribute':<42} {'calls':>8} {'kernels':>8} {'MiB':>8} {'grown':>6} {'us':>6}")
        compiled = [(name, call, options.compiled) for name, call in compiled_calls() if options.compiled]
        for name, call, values in (*counted, *compiled):
            memory, added, began, tenth = 0.0, 0, time.process_time(), max(values // 10, 1)
            for n in range(values):
                if n == tenth:
                    memory, added = resident_mebibytes(), kernels()
                call(n)
            cost = (time.process_time() - began) / values * 1e6
            added, now = kernels() - added, resident_mebibytes()
            print(f"{name:<42} {values:8} {added:8} {now:8.1f} {now - memory:6.1f} {cost:6.0f}", flush=True)
            total += values
            built += added if values == options.values else 0
    now = resident_mebibytes()
    print(f"{total} calls: {start:.1f} MiB before, {now:.1f} after; {built} kernels for values after the first tenth")
    return int(now - start > options.allowed or built > 0)


if __name__ == "__main__":
    sys.exit(main())
