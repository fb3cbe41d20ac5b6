"""The report that every frontend's `examine` returns."""

from __future__ import annotations

from meta.frontend.examination import Examination, missing_operators, operator_uses

USES = operator_uses(
    {"Relu": ["relu_1"], "NonZero": ["a", "b", "c", "d", "e", "f"], "Add": [4, 9]},
    ["Relu", "Add"],
    {"NonZero": "rows depend on values"},
)


def test_the_report_lists_what_is_missing_first() -> None:
    report = Examination("net.onnx", USES, ("input x: the dtype float8e5m2",))
    assert str(report).splitlines() == [
        "net.onnx: 3 operators, 9 uses; 1 not supported, 1 other problem",
        "  MISSING  NonZero      6  nodes a, b, c, d, e, ...: rows depend on values",
        "  ok       Add          2  lines 4, 9",
        "  ok       Relu         1  node relu_1",
        "  PROBLEM  input x: the dtype float8e5m2",
    ]
    assert not report.supported
    assert [use.name for use in report] == ["Add", "NonZero", "Relu"]
    assert USES[0].lines == (4, 9)


def test_a_supported_program_says_so() -> None:
    assert str(Examination("net", USES[:1])).startswith("net: 1 operator, 2 uses; all supported")
    assert Examination("net", ()).supported


def test_missing_operators_come_in_one_problem() -> None:
    listed = "NonZero (6 times: nodes a, b, c, d, e, ...; rows depend on values)"
    assert missing_operators(Examination("net", USES).missing) == f"1 operator is not supported: {listed}"
