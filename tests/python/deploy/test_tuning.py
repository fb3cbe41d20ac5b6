"""Tuning on other machines: variants are timed by a program in C that a command runs. Times of emulators mean nothing;
what is tested is the way there and back."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import meta
from meta.deploy.measure import tables
from meta.errors import ArgumentError, KernelError, NotSupportedError

QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
needs_board = pytest.mark.skipif(
    not (shutil.which(QEMU[0]) and shutil.which("aarch64-linux-gnu-gcc")), reason="needs qemu and a cross compiler"
)
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler in C")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No results of earlier tunings."""
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))


def network(x: Any) -> Any:
    return meta.relu(meta.dense(x, meta.ones((48, 32)), None))


def compiled(target: str | None = None) -> tuple[Any, Sequence[Any]]:
    inputs = [meta.ones((16, 32))]
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(meta.trace(network), target=target)
        return executor.program(*inputs), inputs


@needs_board
def test_kernels_are_timed_by_an_emulator(tmp_path: Path) -> None:
    program, inputs = compiled("aarch64-linux-gnu")
    report = meta.deploy.tune(program, inputs, 2, run=QEMU)
    (kernel,) = report.kernels
    assert 0 < kernel.after <= kernel.before < 1e6
    assert report.target.startswith("aarch64 linux gnu")
    assert report.before is None
    report.save(tmp_path / "tuning.json")
    with meta.with_dialect("tvm"):
        meta.vm.compile(meta.trace(network), target="aarch64-linux-gnu", tuning=tmp_path / "tuning.json")
        with pytest.raises(
            meta.errors.FileError, match="has choices for aarch64 linux gnu generic; expected choices for"
        ):
            meta.vm.compile(meta.trace(network), tuning=tmp_path / "tuning.json")


@needs_board
def test_the_command_tunes_and_writes_both(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import meta\n\ndef make():\n"
        "    return (lambda x: meta.relu(x @ meta.ones((32, 48)))), meta.ones((16, 32))\n"
    )  # fmt: skip
    command = [sys.executable, "-m", "meta", "deploy", "small:make", "--target", "aarch64-linux-gnu", "-o", "out"]
    command += ["--tune", "1", "--run", " ".join(QEMU)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tvm.matmul + tvm.relu" in done.stdout
    assert list(json.loads((tmp_path / "out" / "tuning.json").read_text())["targets"]) == ["aarch64 linux gnu generic"]
    make = ["make", "-C", str(tmp_path / "out"), "CC=aarch64-linux-gnu-gcc", "LDFLAGS=-static"]
    subprocess.run(make, check=True, capture_output=True)
    printed = subprocess.run(
        [*QEMU, "./main"], cwd=tmp_path / "out", capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    assert "0 0 0 0 0 0 0 0 (768 elements)" in printed


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
def test_ssh_gets_the_program_as_its_input(tmp_path: Path) -> None:
    """A stand-in for ssh, which runs the last argument in a shell."""
    ssh = script(tmp_path / "ssh", f'echo "$1" > {tmp_path}/host; shift; exec sh -c "$1"')
    program, inputs = compiled()
    report = meta.deploy.tune(program, inputs, 1, run=(ssh, "board"))
    assert (tmp_path / "host").read_text() == "board\n"
    assert report.kernels[0].before > 0


@needs_compiler
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo no route to host >&2; exit 255", "ended with 255: no route to host"),
        ("echo hello", "printed 'hello'"),
        ("exit 0", "printed 0 lines, not 1"),
    ],
)
def test_says_what_a_command_did(text: str, problem: str, tmp_path: Path) -> None:
    program, inputs = compiled()
    with pytest.raises(KernelError, match=rf"\[tune\] .*run {problem}; expected a command that runs"):
        meta.deploy.tune(program, inputs, 1, run=(script(tmp_path / "run", text),))


@needs_compiler
def test_a_missing_command_is_named() -> None:
    program, inputs = compiled()
    with pytest.raises(KernelError, match="no-such-command board cannot be run"):
        meta.deploy.tune(program, inputs, 1, run=("no-such-command", "board"))


def test_refuses_machines_that_nothing_reaches() -> None:
    program, inputs = compiled("riscv64-linux-gnu")
    with pytest.raises(NotSupportedError, match="compiled for riscv64-linux-gnu"):
        meta.deploy.tune(program, inputs, 1)
    with pytest.raises(ArgumentError, match="seconds is 0"):
        meta.deploy.tune(program, inputs, 0, run=("true",))
    browser, inputs = compiled("wasm32-wasi")
    with pytest.raises(NotSupportedError, match="the program is for wasm32-wasi; expected a target with Linux"):
        meta.deploy.tune(browser, inputs, 1, run=("node",))


def test_arguments_in_c() -> None:
    text = tables([0, 2], [((2, 3), "float32"), 7, ((), "int64")])
    assert "static int64_t shape0[] = {2, 3};" in text
    assert "meta_variants[] = {__tvm_ffi_variant0, __tvm_ffi_variant2};" in text
    assert "meta_arguments[] = {0, -1, 1};" in text
    assert "meta_numbers[] = {7LL};" in text
    assert "{0, 1, 0, 0, 0, 64, 1, shape1, 0, 0}" in text
