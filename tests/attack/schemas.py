"""Random calls drawn from the schemas of all operators: arguments of any rank, dtype, layout and value, not samples.

Most calls are invalid, and must end with an error of meta. One that is accepted has the type that
inference promises, and equal values in every dialect, from the interpreter and from the virtual machine. Cases come in
blocks that draw ranks, dtypes and plain values from a few, so that most accepted calls find their kernels.
"""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray, asarray
from meta.errors import DispatchError, MetaError
from meta.op.dispatch import with_dialect
from meta.op.registry import Op, all_ops
from meta.schema import Arg
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import check_types
from meta.testing.tolerance import compare
from tests.attack.calls import (
    NUMBERS,
    bound,
    compare_programs,
    finite,
    laid_out,
    refusal_problem,
    shown,
    with_padding_of,
    write_special,
)

DIALECTS = ("tvm", "torch", "reference")
_SIZES = (0, 1, 2, 3, 4, 5)
_RANKS = (0, 1, 1, 2, 2, 3, 4, 4, 5)
_INDICES = re.compile("indices|index|target|mask")
_VALUES_DECIDE = frozenset({"argwhere"})
"""Operators whose results have sizes that values decide on."""
_MATRICES = frozenset({"eig", "eigh", "svd", "qr"})
"""Factorizations whose factors are unique only up to signs."""


def case(seed: int, index: int) -> str:
    """One call."""
    block = random.Random(f"schemas/{seed}/block {_block(index)}")
    op = block.choice(_ops())
    rng = random.Random(f"schemas/{seed}/{index}")
    host = _Drawn(op, block, rng).call()
    try:
        return _problem(host, rng)
    except MetaError as error:
        return refusal_problem(host, error)
    except AssertionError as error:
        return f"{op.name}: {error}\n{shown(host)}"


@cache
def _ops() -> list[Op]:
    return list(all_ops())


def _block(index: int) -> int:
    """The block of a case: short ones at first, for short runs, then long ones, which compile less."""
    return index // 250 if index < 20_000 else 80 + (index - 20_000) // 1000


class _Drawn:
    """The arguments of one call. `block` decides on what kernels depend on, `rng` on the rest."""

    def __init__(self, op: Op, block: random.Random, rng: random.Random) -> None:
        self._op, self._rng = op, rng
        self._dtype = block.choice(dtypes.ALL)
        self._rank = block.choice(_RANKS)
        self._plain = {arg.name: [_plain(arg, block) for _ in range(3)] for arg in op.schema.args if not arg.is_tensor}
        self._extreme = rng.random() < 0.3
        self._shape = tuple(rng.choice(_SIZES[1:] if rng.random() < 0.9 else _SIZES) for _ in range(self._rank))

    def call(self) -> OperatorCall:
        args = [self._argument(arg) for arg in self._op.schema.args]
        cut = len(args)
        while cut and not self._op.schema.args[cut - 1].required and self._rng.random() < 0.3:
            cut -= 1
        return OperatorCall(self._op, tuple(args[:cut]), {})

    def _argument(self, arg: Arg) -> Any:
        if arg.name == "key":
            return np.array([self._rng.randrange(100), 0], np.int64)
        match arg.type.role:
            case "tensor" if arg.type.optional and self._rng.random() < 0.4:
                return None
            case "tensor":
                return self._tensor(arg.name)
            case "tensors":
                return [self._tensor(arg.name) for _ in range(self._rng.choice((1, 2, 2, 3)))]
            case "scalar" if self._rng.random() < 0.3:
                return self._rng.choice((0, 1, -2, 0.5, True, float("nan")))
            case "scalar":
                return self._tensor(arg.name)
            case _:
                return self._rng.choice(self._plain[arg.name])

    def _tensor(self, name: str) -> Any:
        rng, shape = self._rng, self._shape
        kind = self._dtype if rng.random() < 0.93 else rng.choice(dtypes.ALL)
        low, high = -4.0, 4.0
        if _INDICES.search(name) and rng.random() < 0.9:
            kind, low, high = ("bool" if "mask" in name else rng.choice(("int64", "int64", "int32"))), 0.0, 2.0
        share = rng.random()
        if share < 0.2:
            shape = tuple(1 if rng.random() < 0.5 else d for d in shape)[rng.randrange(2) :]
        elif share < 0.35:
            shape = tuple(rng.choice((*shape, 1, 2)) for _ in range(rng.choice(_RANKS[:7])))
        values = np.random.default_rng(rng.randrange(2**32)).uniform(low, high, shape)
        values = np.asarray(values).astype(dtypes.to_numpy(kind))
        if rng.random() < 0.3 and not dtypes.is_complex(kind):
            write_special(values, rng, self._extreme)
        if name == "sequence":
            values = np.sort(values, axis=-1) if values.ndim else values  # of other rows, positions mean nothing
        return laid_out(values, rng)


def _plain(arg: Arg, rng: random.Random) -> Any:
    """A value of a plain argument: the default, one of its type, rarely one of another."""
    share = rng.random()
    if not arg.required and share < 0.4:
        return arg.default
    if share > 0.97:
        return rng.choice((*NUMBERS, "x", 2**40, None, (), [0, 0], True))
    name = arg.type.name.removesuffix("?")
    small = (-2, -1, 0, 1, 1, 2, 3)
    if name == "Choice":
        return rng.choice(re.findall(r"'([^']*)'", arg.type.annotation))
    if name in ("IntTuple", "IntPairs", "Sections"):
        values = [rng.choice(small) for _ in range(rng.randrange(5))]
        return values if name != "IntPairs" else [abs(v) for v in values[: len(values) // 2 * 2]]
    if name == "Bool":
        return rng.random() < 0.5
    if name in ("Float", "Number", "NumberOrSize", "FillValue"):
        return rng.choice((0.0, -0.0, 1.0, 0.5, -1.5, 2, 20.0, 1e-5))
    if name == "DType":
        return rng.choice(dtypes.ALL)
    return "cpu" if name == "Device" else rng.choice(small)


def _problem(host: OperatorCall, rng: random.Random) -> str:
    """Raise AssertionError for a wrong result."""
    call = host.map(asarray)
    result = call.run()
    if not host.arrays() and not isinstance(result, NDArray):
        return ""  # operands that are all numbers give a number
    results = flat_results(result)
    if call.op.name not in _VALUES_DECIDE:
        check_types(host.to_meta(), result)
    if not results or not all(isinstance(r, NDArray) for r in results) or call.op.inplace or _is_free(host):
        return ""
    if rng.random() < 0.1:
        for dialect in DIALECTS:
            _compare_dialect(host, results, dialect)
    if rng.random() < 0.02:
        compare_programs(host, compiled=rng.random() < 0.3)
    return ""


def _is_free(host: OperatorCall) -> bool:
    """Whether values are not determined: signs of factors, and sums and products near the limits of a dtype, where the
    order decides what overflows. Elements that are computed one by one have no order."""
    if host.op.name in ("cast", "cast_like"):
        return _casts_outside(host.args[0], host.args[1])
    if host.op.pattern in ("elemwise", "broadcast"):
        return False
    return host.op.name in _MATRICES or any(
        not np.isfinite(x.astype(np.complex128)).all() or np.abs(x.astype(np.complex128)).max(initial=0.0) > 1e3
        for x in host.arrays()
    )


def _casts_outside(x: Any, target: Any) -> bool:
    """Whether floats are cast to an integer dtype that does not hold them, which gives unspecified integers."""
    dtype = target if isinstance(target, str) else str(target.dtype)
    if dtype not in dtypes.INTS or not dtypes.is_float(str(x.dtype)):
        return False
    low, high = dtypes.int_range(dtype)
    values = x.astype(np.float64)
    return not ((values > low - 1) & (values < high + 1)).all()


def _compare_dialect(host: OperatorCall, results: list[Any], dialect: str) -> None:
    try:
        with with_dialect(dialect):
            expected = flat_results(host.to_meta().run())
    except DispatchError:
        return
    for i, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        assert ours.type is theirs.type, f"result {i} is {ours.type!r}, in {dialect} {theirs.type!r}"
        reference = to_numpy(theirs)
        compared = with_padding_of(host, to_numpy(ours), reference)
        if finite(reference).size or not dtypes.is_float(ours.dtype):
            compare(f"result {i}, with {dialect}", compared, reference, tolerance=bound(ours.dtype, reference))
