"""Values, derivatives and second derivatives of meta against the truth and against torch.

A result is right if it is within 50 units of the dtype's epsilon of the truth (for denormals, of the least normal
number), at most twice as far from it as torch's, or as close as the rounding of one operand allows. Where there is no
truth, torch's result in the dtype or in float64 is right, and at infinities the limit. `_undefined` has the two
exceptions, which docs/derivatives.md explains.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpmath import mpf

from meta import dtype as dtypes
from tests.python.singular.points import epsilon
from tests.python.singular.truth import ClosedForms, Differences
from tests.python.singular.variants import Variant, meta_results, torch_results

ULPS = 50
MODES = ("eager", "jvp", "reference", "vm")


@dataclass(frozen=True, slots=True)
class Finding:
    """A wrong result; `truth` is None where torch is the judge."""

    variant: str
    dtype: str
    what: str
    point: tuple[float, ...]
    actual: float
    torch: float
    truth: Any

    def __str__(self) -> str:
        at = ", ".join(f"{p:.9g}" for p in self.point)
        true = "undefined" if self.truth is None else f"{float(self.truth):.9g}"
        return (
            f"{self.variant} {self.dtype} {self.what} at ({at}): {self.actual:.9g}, torch {self.torch:.9g}, true {true}"
        )


@dataclass(slots=True)
class Verdict:
    """How many results are right, by the reason, and the wrong ones."""

    counts: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])


def judge(variant: Variant, dtype: str, modes: Sequence[str] = MODES[:2], small: bool = False) -> Verdict:
    """Compare all results of a variant in a dtype."""
    verdict = Verdict()
    operands = variant.operands(dtype, small)
    with np.errstate(all="ignore"):
        ours = {mode: meta_results(variant, operands, mode) for mode in modes}
        theirs = [torch_results(variant, operands, wide) for wide in (False, True)]
        rows = list(zip(*(c.astype(np.float64).tolist() for c in operands), strict=True))
        for index, point in enumerate(rows):
            truths = _Truths(variant, point)
            for name in ours[modes[0]]:
                narrow, wide = (_pick(table, name, index) for table in theirs)
                # What torch differentiates, or for derivatives of the first order the value.
                base = [_pick(table, name.rpartition("d")[0] or "value", index) for table in theirs]
                values = [_pick(table, "value", index) for table in theirs]
                rounded = None if wide is None else float(np.float64(wide).astype(dtypes.to_numpy(dtype)))
                for mode in modes:
                    if name not in ours[mode]:
                        continue
                    actual = _pick(ours[mode], name, index) or 0.0
                    reason = _reason(actual, truths.get(name), (narrow, rounded), dtype, point)
                    if (
                        reason == "wrong"
                        and truths.get(name) is not None
                        and _is_rounded(actual, truths, name, dtype, point)
                    ):
                        reason = "as of a rounded operand"
                    if reason == "wrong" and (truths.get(name) is None or not all(map(math.isfinite, point))):
                        reason = _undefined(actual, (narrow, rounded), base, values)
                    verdict.counts[reason] += 1
                    if reason == "wrong":
                        shown = math.nan if narrow is None else narrow
                        what = f"{mode} {name}"
                        verdict.findings.append(
                            Finding(str(variant), dtype, what, point, actual, shown, truths.get(name))
                        )
    return verdict


def _pick(table: dict[str, Any], name: str, index: int) -> float | None:
    column = table.get(name)
    return None if column is None else float(column[index])


class _Truths:
    """The true results at a point by name; None for one that is not defined. Infinities stand for the limit."""

    def __init__(self, variant: Variant, point: tuple[float, ...]) -> None:
        finite = tuple(math.copysign(sys.float_info.max, p) if math.isinf(p) else p for p in point)
        functions = [] if any(map(math.isnan, point)) else variant.truths()
        self._forms: Any = None
        if len(functions) == 3:
            self._forms = ClosedForms(functions, finite)
        elif functions:
            nearest = [float(round(p)) for p in finite if abs(p) < 1e15]
            self._forms = Differences(functions[0], finite, (0.0, 1.0, -1.0, *variant.numbers(), *nearest))
        self._known: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        if self._forms is None:
            return None
        if name not in self._known:
            positions = [] if name == "value" else list(map(int, name.split("d")[1:]))
            self._known[name] = self._forms.derivative(*positions)
        return self._known[name]


def _reason(
    actual: float, truth: Any, references: tuple[float | None, float | None], dtype: str, point: tuple[float, ...]
) -> str:
    """Why a result is right, or "wrong"."""
    known = [r for r in references if r is not None]
    is_finite = all(map(math.isfinite, point))
    if truth is not None and not is_finite and abs(truth) < 1e-100:
        truth = mpf(0)
    if truth is not None and _close(actual, truth, dtype):
        return "true"
    if truth is not None and is_finite:
        theirs = references[1] if references[0] is None else references[0]
        if theirs is None:
            return "wrong"
        if not math.isfinite(theirs) or not math.isfinite(actual):
            return "as torch" if not math.isfinite(theirs) else "wrong"
        return "as torch" if abs(mpf(actual) - truth) <= 2 * abs(mpf(theirs) - truth) else "wrong"
    if not known or any(_close(actual, r, dtype) for r in known):
        return "as torch"
    return "wrong"


def _undefined(
    actual: float, references: Sequence[float | None], base: Sequence[float | None], values: Sequence[float | None]
) -> str:
    """Whether a derivative that does not exist may differ from torch's: a number where torch has NaN although the value
    is none, or NaN where what is differentiated is NaN."""
    if all(map(_is_nan, references)) and not any(map(_is_nan, values)):
        return "where torch has NaN"
    return "NaN of NaN" if math.isnan(actual) and any(map(_is_nan, [*base, *values])) else "wrong"


def _is_rounded(actual: float, truths: _Truths, name: str, dtype: str, point: tuple[float, ...]) -> bool:
    """Whether rounding one operand explains the error."""
    if not all(map(math.isfinite, (actual, *point))):
        return False
    slopes = [truths.get(f"{name}d{i}" if name != "value" else f"d{i}") for i in range(len(point))]
    if None in slopes:
        return False
    bound = sum(abs(x * slope) for x, slope in zip(point, slopes, strict=True))
    return abs(mpf(actual) - truths.get(name)) <= bound * epsilon(dtype)


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def _close(actual: float, expected: Any, dtype: str) -> bool:
    """Whether a result is as close to a number as it must be, or both are NaN or the same infinity."""
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(actual)
    if math.isnan(actual):
        return False
    eps, largest = epsilon(dtype), dtypes.largest(dtype)
    if math.isinf(actual) or abs(expected) == math.inf:  # numbers at the end of the range may round to infinity
        end = largest * (1 - ULPS * eps)
        return (expected > 0) == (actual > 0) and abs(expected) >= end and abs(actual) >= end
    bound = mpf(max(abs(expected), dtypes.smallest_normal(dtype))) * ULPS * eps
    return abs(mpf(actual) - expected) <= bound
