"""`python -m meta` alone: the commands in groups, with examples that run, in 80 columns."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import meta
from meta.cli import COMMANDS, EXAMPLES, main
from meta.inspect.sources import location


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["env"],
        ["op", "conv2d", "softmax", "attention_with_lse"],
        ["ops"],
        ["ops", "--parts", "--only", "loss", "--only", "pool"],
        ["ops", "--missing", "torch", "--only", "nn"],
        ["explain", "matmul", "(64, 32) float32", "(32, 16) float32"],
    ],
    ids=" ".join,
)
def test_tables_fit_without_cutting_names(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(arguments)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b|site-packages|\033", out)
    if "--parts" in arguments:
        assert "\nbinary_cross_entropy_with_logits_dx\n" in out  # longer than its column


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminals_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    arguments = ["op", "softmax"]
    with contextlib.redirect_stdout(Terminal()) as coloured:
        main(arguments)
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.redirect_stdout(Terminal()) as plain:
        main(arguments)
    assert "\033[1mgradient\033[0m" in coloured.getvalue()
    assert re.sub(r"\033\[\d+m", "", coloured.getvalue()) == plain.getvalue()


def test_installed_files_are_shown_by_package() -> None:
    installed = Path("/usr/lib/python3/site-packages/meta/op/declare/nn.py")
    assert location(installed, 3) == "meta/op/declare/nn.py:3"


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
