"""A small run of the judge, and what it must find."""

from __future__ import annotations

import math
from typing import Any

import pytest

import meta
from tests.python.singular.judge import judge
from tests.python.singular.truth import TRUTHS, Differences
from tests.python.singular.variants import Variant, variants

FIRST = {variant.sample.op: variant for variant in reversed(list(variants()))}
"""The first call of every operator."""


@pytest.mark.parametrize("part", range(4))
def test_no_operator_has_wrong_derivatives_at_some_points(part: int) -> None:
    findings = [
        f for op in sorted(FIRST)[part::4] for f in judge(FIRST[op], "float32", ("eager",), small=True).findings
    ]
    assert findings == [], "\n".join(map(str, findings))


def test_wrong_derivatives_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 - x**2 by a difference, as asin and atanh should not have it."""
    monkeypatch.setattr(Variant, "run", lambda self, x: meta.log(1.0 + x) - meta.log(1.0 - x))
    verdict = judge(FIRST["atanh"], "float32", ("eager",))
    assert {f.what for f in verdict.findings} == {"eager value", "eager d0", "eager d0d0"}


@pytest.mark.parametrize(
    ("name", "point", "first", "second"),
    [
        ("sinc", 0.0, 0.0, -math.pi**2 / 3), ("abs", 0.0, None, 0.0), ("relu6", 0.0, None, 0.0),
        ("log", 0.0, None, None), ("tanh", 1e-300, 1.0, -2e-300), ("atan", 1e300, 1e-600, -0.0),
    ],
)  # fmt: skip
def test_derivatives_of_many_digits(name: str, point: float, first: float | None, second: float | None) -> None:
    function: Any = TRUTHS.get(name, lambda x: min(max(x, 0), 6))
    differences = Differences(function, (point,), (0.0,))
    for derivative, expected in ((differences.derivative(0), first), (differences.derivative(0, 0), second)):
        assert derivative == expected if expected is None else float(derivative) == pytest.approx(expected, abs=1e-300)
