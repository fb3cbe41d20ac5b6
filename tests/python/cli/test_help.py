"""`python -m meta` alone: the commands in groups, with examples that run, in 80 columns."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import meta
from meta.cli import COMMANDS, EXAMPLES, main


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    assert all(f"\n  {name:10}" in text for name in COMMANDS)
    assert EXAMPLES.rstrip() in text
    assert max(map(len, text.splitlines())) < 80


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_commands_fits(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"meta {meta.__version__}\n"


@pytest.mark.parametrize("line", [line for line in EXAMPLES.splitlines()[1:] if "onnx" not in line])
def test_examples_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[3:]) == 0


def test_a_reader_may_stop_reading() -> None:
    command = [sys.executable, "-m", "meta", "ops", "--json", "--only", "unary"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
    assert "Traceback" not in errors
