"""The target `make frontends`: its lines, its table, and what it skips."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.python.conformance import frontends

ONNX = {
    "totals": {"ALL": {"passed": 5, "unsupported": 2, "failed": 1}, "node": {"passed": 5}},
    "not_passed": {"failed": {"test_abs": "other values"}, "unsupported": {"test_text": "StringConcat"}},
}
EXPORT = {
    "totals": {"passed": 2, "error import": 1, "error run": 1},
    "models": {"a": {"verdict": "error", "why": "no row"}, "b": {"verdict": "passed", "why": ""}},
}
RELAY = "RELAY text 126/126 json 125/125 run 124/126 vm 126/126\n"


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Judges whose results are those above, and the commands that ran them."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if "--out" in command:
            out = Path(command[command.index("--out") + 1])
            if out.stem == "compile":
                return subprocess.CompletedProcess(command, 1, "", "Traceback ...\nImportError: no backend\n")
            out.write_text(json.dumps(ONNX if out.stem == "onnx" else EXPORT))
        return subprocess.CompletedProcess(command, 0, RELAY, "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(frontends, "find_spec", lambda name: None if name == "timm" else object())
    return commands


def test_every_judge_prints_a_line(judges: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- judges -->\nold\n<!-- /judges -->\nAfter.\n")
    options = ["--corpus", str(tmp_path), "--out", str(tmp_path), "--page", str(page)]
    assert frontends.main(options) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(judges) == 4
    assert lines[0].startswith("relay            passed 124/126, wrong 2 in 0 s; text 126/126 json 125/125 run 124/126")
    assert lines[1].startswith("onnx             passed 5/8, failed 1, unsupported 2 in ")
    assert lines[2].startswith("export           passed 2/4, error 2 in ")
    assert lines[3] == "dynamic          skipped: part of export in bounded runs"
    assert lines[4].startswith("compile          passed 0/1, error 1 in 0 s; ImportError: no backend")
    written = page.read_text()
    assert "old" not in written
    assert "| onnx | ONNX's backend tests, with the standard's values | 5 of 8 | failed 1, unsupported 2 |" in written
    assert written.startswith("Before.")
    assert written.endswith("After.\n")


def test_what_cannot_run_is_skipped_with_the_reason(
    judges: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    options = ["--whole", "--conformance", missing, "--corpus", missing, "--out", str(tmp_path)]
    assert frontends.main([*options, "relay", "onnx", "export"]) == 0
    assert not judges
    assert capsys.readouterr().out.splitlines() == [
        f"relay            skipped: there is no folder {missing} (RELAY_CORPUS)",
        f"onnx             skipped: there is no {missing}/onnx_judge.py (CONFORMANCE)",
        "export           skipped: timm cannot be imported",
    ]


def test_refusals_are_no_failure(judges: list[list[str]], tmp_path: Path) -> None:
    assert frontends.Result(frontends.JUDGES["onnx"], {"passed": 3, "unsupported": 9}).is_wrong is False
    assert frontends.Result(frontends.JUDGES["onnx"], {"passed": 3, "failed": 1}).is_wrong
    result = frontends.Result(frontends.JUDGES["onnx"])
    frontends._read(result, ONNX)
    assert result.refused == ["test_abs (failed): other values", "test_text (unsupported): StringConcat"]
