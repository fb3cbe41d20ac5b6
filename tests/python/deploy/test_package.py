"""What `Executor.save` and `python -m meta deploy` write: folders that build by themselves, archives and libraries."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.deploy.machines import HOST
from meta import nn
from meta.cli import main
from meta.errors import NotSupportedError
from tests.python.deploy.programs import require

HOST_ONLY = pytest.mark.skipif(shutil.which("make") is None, reason="needs make and a C compiler")


class Counter(meta.Model):
    def build(self) -> None:
        self.linear = nn.Linear(3, 2)
        self.buffer("calls", meta.zeros((1,)))

    @meta.trace
    def forward(self, x: Any) -> Any:
        self.calls.update(self.calls + 1.0)  # type: ignore[attr-defined]
        return meta.gelu(self.linear(x)), self.calls * 10.0  # type: ignore[attr-defined]


class _Tensor(ctypes.Structure):
    """meta_tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 8), ("ndim", ctypes.c_int32), ("dtype", ctypes.c_int32),
    )  # fmt: skip


@pytest.fixture
def executor() -> Any:
    meta.random.seed(0)
    with meta.with_dialect("tvm"):
        compiled = meta.vm.compile(Counter().infer_mode())
    compiled.program(meta.ones((2, 3)))
    return compiled


def printed(path: Path, *arguments: str) -> list[list[float]]:
    """The values that the example prints."""
    completed = subprocess.run(["./main", *arguments], cwd=path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    return [[float(word) for word in line.partition(":")[2].partition(" (")[0].split()] for line in lines]


@HOST_ONLY
def test_a_folder_builds_and_runs(executor: Any, tmp_path: Path) -> None:
    require(HOST)
    executor.save(tmp_path / "counter", format="c")
    subprocess.run(["make", "-s", "CFLAGS=-O1 -Werror"], cwd=tmp_path / "counter", check=True)
    y, calls = executor(meta.zeros((2, 3)))
    actual = printed(tmp_path / "counter")
    np.testing.assert_allclose(actual[0], y.numpy().ravel(), rtol=1e-5)
    assert actual[1] == calls.tolist() == [10.0]
    missing = subprocess.run(["./main", "missing"], cwd=tmp_path / "counter", capture_output=True, text=True)
    assert missing.returncode == 1
    assert "missing cannot be opened: No such file" in missing.stderr


@HOST_ONLY
def test_archives_link_without_special_flags(executor: Any, tmp_path: Path) -> None:
    """C++ uses the wrapper; the file that the program saves continues it."""
    require(HOST)
    digest = executor.save(tmp_path / "libcounter.a", format="archive")
    assert digest == hashlib.sha256((tmp_path / "libcounter.a").read_bytes()).hexdigest()
    weights = f"{tmp_path}/libcounter.a.safetensors"
    (tmp_path / "caller.cpp").write_text(
        '#include <cstdio>\n#include "counter.h"\n#include "meta_program.hpp"\n'
        "int main() {\n"
        f'  meta::Program program(counter_code, "{weights}");\n'
        "  alignas(META_ALIGNMENT) float x[6] = {1, 1, 1, 1, 1, 1};\n"
        "  auto results = program.run({meta::tensor(x, {2, 3})});\n"
        f'  program.save("{weights}");\n'
        '  std::printf("%.9g %.9g\\n", results[0].data<float>()[0], program.tensor("calls").data<float>()[0]);\n'
        "  try { program.run({}); } catch (const meta::Error &error) { std::puts(error.what()); }\n"
        "}\n"
    )
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "caller.cpp", "libcounter.a", "-o", "caller"]
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ on this machine")
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    first, error = subprocess.run(["./caller"], cwd=tmp_path, capture_output=True, text=True).stdout.splitlines()
    expected, _ = executor(meta.ones((2, 3)))
    np.testing.assert_allclose([float(word) for word in first.split()], [expected.numpy()[0, 0], 1.0], rtol=1e-6)
    assert error == "0 inputs; counter takes 1"
    assert meta.load(weights)["calls"].tolist() == [1.0]


def test_a_library_is_called_by_python(executor: Any, tmp_path: Path) -> None:
    """Weights may be in two files: the frozen base in one, what is trained in another."""
    require(HOST)
    executor.save(tmp_path / "counter.so", format="library")
    library = ctypes.CDLL(str(tmp_path / "counter.so"))
    library.meta_program_error.restype = ctypes.c_char_p
    program = ctypes.c_void_p()
    code = ctypes.c_char.in_dll(library, "counter_code")
    assert library.meta_program_open(ctypes.byref(program), ctypes.byref(code), None) == 0
    assert library.meta_program_run(program, None, 0, None, 0) == 3
    assert library.meta_program_error(program) == b"0 inputs; counter takes 1"
    arrays = meta.load(tmp_path / "counter.so.safetensors")
    meta.save(tmp_path / "trained.safetensors", {"calls": arrays["calls"]})
    meta.save(tmp_path / "base.safetensors", {name: x for name, x in arrays.items() if name != "calls"})
    x = np.frombuffer(bytearray(6 * 4 + 64), "float32")
    start = -x.ctypes.data % 64 // 4
    given = _Tensor(x[start:].ctypes.data, (2, 3), 2, 11)
    results = (_Tensor * 2)()
    assert library.meta_program_load(program, f"{tmp_path}/base.safetensors".encode()) == 0
    assert library.meta_program_run(program, ctypes.byref(given), 1, results, 2) == 8
    assert library.meta_program_error(program) == b"'calls' has no values; load weights first"
    assert library.meta_program_load(program, f"{tmp_path}/trained.safetensors".encode()) == 0
    assert library.meta_program_run(program, ctypes.byref(given), 1, results, 2) == 0
    y = np.ctypeslib.as_array(ctypes.cast(results[0].data, ctypes.POINTER(ctypes.c_float)), (2, 2))
    np.testing.assert_allclose(y, executor(meta.zeros((2, 3)))[0].numpy(), rtol=1e-6)
    library.meta_program_close(program)


@HOST_ONLY
def test_the_command_writes_a_model_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require(HOST)
    (tmp_path / "deployed_model.py").write_text(
        "import meta\nfrom meta import nn\n\n\ndef net():\n    meta.random.seed(0)\n"
        "    return nn.Linear(8, 4), meta.ones((2, 8))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["deploy", "deployed_model:net", "--embed", "-o", str(tmp_path / "out")]) == 0
    assert "build it there: make" in capsys.readouterr().out
    subprocess.run(["make", "-s"], cwd=tmp_path / "out", check=True)
    assert not list((tmp_path / "out").glob("*.safetensors"))
    bias = sys.modules["deployed_model"].net()[0](meta.zeros((2, 8))).detach().numpy()
    np.testing.assert_allclose(printed(tmp_path / "out")[0], bias.ravel(), rtol=1e-5)
    assert main(["deploy", "deployed_model:other", "-o", str(tmp_path / "other")]) == 1
    assert "deployed_model has no function 'other'; expected MODULE:FUNCTION" in capsys.readouterr().err
    assert main(["deploy", "deployed_model:net", "--target", "z80", "-o", str(tmp_path / "other")]) == 1
    assert "'z80' is no triple that programs are compiled for" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_a_missing_compiler_is_named(executor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotSupportedError, match=r"there is no cc on this machine; .*Debian: gcc binutils"):
        executor.save(tmp_path / "libcounter.a", format="archive")
    with pytest.raises(NotSupportedError, match=r"there is no riscv64-linux-gnu-gcc .*Debian: gcc-riscv64-linux-gnu"):
        executor.save(tmp_path / "libcounter.a", format="archive", target="riscv64-linux-gnu")
    assert not list(tmp_path.iterdir())
