"""Compiled programs that read and write at positions out of range, of every integer dtype: eager calls refuse them. The
results are those of the reference dialect: NaN, or nothing written; foreign memory that is read or written shows as
another value or a crash."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from meta import dtype as dtypes
from meta.errors import MetaError
from meta.op.dispatch import with_dialect
from meta.op.registry import get
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import make_call
from meta.testing.programs import trace_call
from meta.testing.samples import Sample
from meta.testing.tolerance import compare
from meta.vm import compile as compile_program
from tests.attack.calls import bound, shown
from tests.python.op.samples import samples

_DRAWS = 6
"""Sets of positions for one program."""
_FAR = (
    -1,
    -2,
    -3,
    2,
    3,
    5,
    9,
    127,
    128,
    255,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**64 - 1,
)


@cache
def _samples() -> tuple[Sample, ...]:
    return tuple(sample for sample in samples() if get(sample.op).positions is not None)


def case(seed: int, index: int) -> str:
    """One program."""
    rng = random.Random(f"positions/{seed}/{index}")
    call = make_call(rng.choice(_samples()))
    kind = rng.choice([name for name in dtypes.ALL if dtypes.is_int(name) and name != "bool"])
    host = call.map(lambda a: a.astype(kind) if a.dtype.kind in "iu" else a)
    try:
        with with_dialect("tvm"):
            program = compile_program(trace_call(host.to_meta()))
            results = [_run(program, drawn) for drawn in _draws(host, rng)]
    except MetaError:
        return ""
    return _difference(host, results)


def _run(program: Any, host: OperatorCall) -> tuple[OperatorCall, list[Any]]:
    return host, [to_numpy(x) for x in flat_results(program(host.to_meta().arrays()))]


def _draws(host: OperatorCall, rng: random.Random) -> list[OperatorCall]:
    return [host.map(lambda a: _moved(a, rng) if a.dtype.kind in "iu" else a) for _ in range(_DRAWS)]


def _moved(positions: Any, rng: random.Random) -> Any:
    """The positions with some that are far away."""
    low, high = dtypes.int_range(str(positions.dtype))
    far = [value for value in _FAR if low <= value <= high]
    moved = positions.copy()
    flat = moved.reshape(-1)
    for _ in range(rng.choice((1, 2, flat.size)) if flat.size else 0):
        flat[rng.randrange(flat.size)] = rng.choice(far)
    return moved


def _difference(host: OperatorCall, results: list[tuple[OperatorCall, list[Any]]]) -> str:
    with with_dialect("reference"):
        program = compile_program(trace_call(host.to_meta()))
        for drawn, ours in results:
            theirs = _run(program, drawn)[1]
            try:
                for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                    compare(f"result {i}, with the reference", a, b, tolerance=bound(str(a.dtype), b))
            except AssertionError as error:
                positions = [a.ravel()[:20].tolist() for a in drawn.arrays() if a.dtype.kind in "iu"]
                return f"{host.op.name}: {error}\n{shown(drawn)} {positions}"
    return ""
