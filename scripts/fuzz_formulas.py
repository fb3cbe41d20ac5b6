"""Compares kernels that follow from decompositions with torch in float64, on random calls.

    python -m scripts.fuzz_formulas 1000 --seed 1      calls 0 to 999 of seed 1
    python -m scripts.fuzz_formulas 1 --seed 1 --only 17

A call is a sample row of such an operator with other shapes, which broadcast, another dtype, other numbers, and values
that include ties, zeros of both signs and, of integers, the ends of the dtype. It runs eagerly, and in a program that
fuses it with operators before and after it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

import meta
from meta import dtype as dtypes
from meta.op import formulas
from meta.op.decomposition import all_decompositions
from meta.op.dispatch import implementation, with_dialect
from meta.op.registry import get
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import check_types, check_values, make_call
from meta.testing.samples import Sample, T
from tests.python.op.samples import samples

INTEGERS: Final = ("int8", "int32", "int64", "uint8", "bool")
SHAPES: Final = ((), (1,), (5,), (33,), (3, 5), (4, 1, 6))


class Values(T):
    """A tensor like another, whose values include numbers at which formulas change."""

    __slots__ = ("scale",)

    def __init__(self, like: T, shape: tuple[int, ...], scale: float) -> None:
        super().__init__(*shape, dtype=like.dtype, low=like.low, high=like.high)
        self.scale = scale

    def values(self, dtype: str, seed: str) -> np.ndarray[Any, Any]:
        rng = random.Random(seed)
        actual = self.dtype_in(dtype)
        drawn = [self._drawn(rng, actual) for _ in range(int(np.prod(self.shape)))]
        values = np.array(drawn, "float64" if dtypes.is_float(actual) else object)
        return np.reshape(values, self.shape).astype(dtypes.to_numpy(actual))

    def _drawn(self, rng: random.Random, dtype: str) -> float:
        kind = rng.random()
        if not dtypes.is_float(dtype):
            low, high = (0, 1) if dtype == "bool" else dtypes.int_range(dtype)
            return rng.randint(low, high) if kind < 0.1 else rng.randint(max(low, int(self.low * 4)), min(high, 9))
        if kind < 0.1 and self.low <= 0 <= self.high:
            return rng.choice((0.0, -0.0, 1.0, 0.5))
        value = rng.uniform(self.low, self.high) * self.scale
        return round(value * 2) / 2 if kind < 0.3 and self.low <= 0 else value


@cache
def derived() -> list[str]:
    """The elementwise operators whose TVM kernel is their decomposition."""
    names = [name for name in all_decompositions() if get(name).pattern in ("elemwise", "broadcast")]
    payloads = {name: getattr(implementation(get(name), "tvm"), "payload", None) for name in names}
    return sorted(name for name, each in payloads.items() if getattr(each, "source", "") == formulas.SOURCES)


def random_call(seed: int, index: int) -> tuple[Sample, str]:
    """A sample row and the dtype that it runs in, determined by seed and index."""
    rng = random.Random(f"{seed}/{index}")
    name = derived()[index % len(derived())]
    row = rng.choice([row for row in samples() if row.op == name])
    takes_numbers = any(isinstance(a, float) for a in row.args)  # whose references are for floats
    dtype = rng.choice(row.run_dtypes(() if takes_numbers else INTEGERS))
    while True:
        sample = _varied(row, rng, f"{seed}/{index}")
        if sample.accepts(dtype):  # gradients have the shape of results, numbers the range of the dtype
            return sample, dtype


def _varied(row: Sample, rng: random.Random, id: str) -> Sample:
    """A row with other shapes, values and numbers."""
    shape = rng.choice(SHAPES)
    # The states of optimizers have sizes that belong together.
    scale = 1.0 if get(row.op).family == "optimizer" else rng.choice((0.01, 1.0, 1.0, 1.0, 4.0))
    factor = rng.choice((0.25, 0.5, 1.0, 2.0, round(rng.uniform(0.1, 2.0), 3)))
    broadcasts = get(row.op).pattern == "broadcast"

    def smaller(path: str) -> tuple[int, ...]:
        if path == "0" or not broadcasts or rng.random() < 0.5:
            return shape
        return tuple(1 if rng.random() < 0.2 else size for size in shape[rng.randrange(len(shape) + 1) :])

    def argument(a: Any) -> Any:
        return a * factor if isinstance(a, float) else a

    args, kwargs = row.map(lambda t, path: Values(t, t.shape and smaller(path), scale))
    options: dict[str, Any] = {name: argument(a) for name, a in kwargs.items()}
    options |= {"ref": row.ref, "check": row.check, "tol": row.tol, "reason": row.reason, "id": id}
    return Sample(row.op, *map(argument, args), **options)


def check(sample: Sample, dtype: str) -> str:
    """Compare the call with its reference, and with a program; the problem, "" without one."""
    host = make_call(sample, dtype)
    try:
        with with_dialect("tvm"):
            result = host.to_meta().run()
            check_types(host.to_meta(), result)
            check_values(sample, host, result)
            _check_fused(sample, host)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return f"{type(error).__name__}: {str(error)[:500]}"
    return ""


def _same(x: Any) -> Any:
    """The values of x by another operator."""
    return meta.logical_and(x, x) if x.dtype == "bool" else meta.maximum(x, x)


def _check_fused(sample: Sample, host: OperatorCall) -> None:
    """A kernel with operators before and after it agrees with the reference."""
    call = host.to_meta()

    @meta.trace
    def program(arrays: list[Any]) -> Any:
        results = call.with_arrays(map(_same, arrays)).run()
        same = tuple(map(_same, flat_results(results)))
        return same if isinstance(results, tuple) else same[0]

    check_values(sample, host, meta.vm.compile(program)(host.to_meta().arrays()), f"{sample.op}, fused,")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    args = parser.parse_args(argv)
    found = 0
    for index in range(args.count) if args.only is None else (args.only,):
        sample, dtype = random_call(args.seed, index)
        if problem := check(sample, dtype):
            found += 1
            print(f"--seed {args.seed} --only {index}: {dtype} {sample.args} {sample.kwargs}: {problem}\n", flush=True)
    print(f"{args.count} calls, {found} findings")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
