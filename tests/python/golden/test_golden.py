"""Programs have the IR, the kernels, the planned bytes and the results of their records.

After a change that is meant to alter them: `python -m tests.python.golden --write`, and review the texts.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.python.golden.__main__ import EXPECTED, main
from tests.python.golden.programs import PROGRAMS
from tests.python.golden.record import Record, differences, parse

PROCESSES = 2
"""Processes with the settings of the records, so that workers share the work; each takes seconds to import torch."""
RECORD = Record(
    {"intermediates": 80, "kernels": 2},
    {"call_0": (2.0, 0.001), "checksum": (40.0, -3.0)},
    ["tvm.dense + tvm.relu", "tvm.sum"],
    ["tvm.dense", "tvm.relu"],
    ["def main(%x) {", "  %0 = relu(%x)", "}"],
)


@pytest.mark.parametrize("part", range(PROCESSES))
def test_programs_are_as_recorded(part: int) -> None:
    command = [sys.executable, "-m", "tests.python.golden", *list(PROGRAMS)[part::PROCESSES]]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode == 3:
        pytest.skip(process.stdout)
    assert not process.returncode, process.stdout + process.stderr


def test_every_record_has_a_program() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == set(PROGRAMS)


def test_an_unknown_program_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.python.golden.__main__.ENVIRONMENT", {})
    assert main(["mpl_sgd"]) == 2
    assert capsys.readouterr().out.startswith("there is no program mpl_sgd; expected mlp_sgd, ")


def test_records_are_read_as_written() -> None:
    assert parse(str(RECORD)) == RECORD
    for path in EXPECTED.glob("*.txt"):
        assert str(parse(path.read_text())) == path.read_text()


def test_more_bytes_differ_and_fewer_do_not() -> None:
    assert differences(RECORD, replace(RECORD, sizes={"intermediates": 88, "kernels": 2})) == [
        "intermediates: 88 instead of 80"
    ]
    assert differences(RECORD, replace(RECORD, sizes={"intermediates": 72, "kernels": 2})) == []


def test_values_may_differ_by_rounding() -> None:
    assert differences(RECORD, replace(RECORD, values={**RECORD.values, "call_0": (2.000001, 0.001001)})) == []
    assert differences(RECORD, replace(RECORD, values={**RECORD.values, "call_0": (2.00001, 0.001)})) == [
        "values of call_0: 2.00001, 0.001 instead of 2, 0.001"
    ]
    assert differences(RECORD, replace(RECORD, values={"call_0": (2.0, 0.001)})) == [
        "values of checksum: none instead of 40, -3"
    ]


def test_other_kernels_are_shown_as_a_diff() -> None:
    (text,) = differences(RECORD, replace(RECORD, kernels=["tvm.dense", "tvm.relu", "tvm.sum"]))
    assert text.splitlines() == [
        "--- expected kernels", "+++ actual kernels", "@@ -1,2 +1,3 @@", "-tvm.dense + tvm.relu", "+tvm.dense",
        "+tvm.relu", " tvm.sum",
    ]  # fmt: skip
