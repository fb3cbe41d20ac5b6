"""The cases that the checks of `opcheck` take: a call with its device, run on a dialect, and comparisons of results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from meta import dtype as dtypes
from meta.eager.call import device_of
from meta.eager.ndarray import NDArray
from meta.errors import TypeInferenceError
from meta.ir.expr import CallInfo
from meta.ir.type import Value
from meta.op.dispatch import Implementation, candidates, implementations, with_dialect
from meta.op.registry import Op, as_type
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import check_types
from meta.testing.samples import Sample
from meta.testing.tolerance import FORWARD, compare


class Skip(Exception):
    """The check does not apply, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class Case:
    """A call with NumPy arrays, the device it runs on, and the Sample it comes from, if any."""

    call: OperatorCall
    device: str = "cpu"
    sample: Sample | None = None

    @property
    def op(self) -> Op:
        return self.call.op

    def fresh(self) -> OperatorCall:
        """The call on new meta arrays."""
        return self.call.to_meta(self.device)

    def variant(self, function: Callable[[Any], Any]) -> Case:
        """The same case with `function(array)` in place of each array."""
        return Case(self.call.map(function), self.device)

    def cast(self, dtype: str) -> Case:
        """The same case with its floating arrays in `dtype`."""
        numpy_dtype = dtypes.to_numpy(dtype)
        return self.variant(lambda a: a.astype(numpy_dtype) if dtypes.is_float(str(a.dtype)) else a)

    def refusal(self) -> str | None:
        """The problem that the type function has with the call, None if it accepts it."""
        try:
            self.op.infer(self.fresh().bound_arguments())
        except TypeInferenceError as error:
            return error.summary
        return None

    def call_info(self) -> CallInfo | None:
        """The call as dialects see it, None for one that needs no kernel."""
        args = self.fresh().bound_arguments()
        types = tuple(map(as_type, args))
        out = self.op.infer(types)
        return None if self.op.view or isinstance(out, Value) else CallInfo(self.op, types, out, device_of(args, out))

    def accepting(self) -> list[Implementation]:
        """The implementations that accept the call, also those for eager calls by name only, by descending plevel."""
        info = self.call_info()
        if info is None:
            return []
        accepted: list[Implementation] = []
        for implementation in implementations(self.op):
            with with_dialect(implementation.dialect.name):
                accepted += [c.implementation for c in candidates(info) if c.refusal is None]
        return accepted

    def dialects(self) -> list[str]:
        """The names of the dialects that accept the call."""
        return [i.dialect.name for i in self.accepting()]

    def run(self, dialect: str | None = None) -> list[Any]:
        """The results on a dialect, by default dispatch's choice; their types are checked."""
        with with_dialect(dialect) if dialect else nullcontext():
            call = self.fresh()
            result = call.run()
        check_types(call, result)
        return flat_results(result)


def two_tolerances(dtype: str) -> tuple[float, float]:
    """Twice the tolerance of a dtype, because each of two implementations may deviate by it."""
    rtol, atol = FORWARD.get(dtype, (0.0, 0.0))
    return 2 * rtol, 2 * atol


def compare_results(
    what: str, actual: list[Any], expected: list[Any], *, exact: bool = False, oracle: list[Any] | None = None
) -> None:
    """Raise AssertionError unless two lists of results agree, within `two_tolerances` or exactly."""
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, expected {len(expected)}"
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        label = what if len(expected) == 1 else f"{what}, result {i}"
        if not isinstance(b, NDArray):
            assert a == b, f"{label}: {a!r}, expected {b!r}"
            continue
        tolerance = (0.0, 0.0) if exact else two_tolerances(b.dtype)
        compare(label, to_numpy(a), to_numpy(b), tolerance=tolerance, oracle=oracle[i] if oracle else None)
