"""Programs as shared libraries: called from C and through TVM's runtime, and programs that have no such form."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.backend.tvm import adapter as tvm
from meta.errors import ArgumentError, NotSupportedError
from meta.files import safetensors
from meta.vm import saved

CALLER = r"""
#include <stdio.h>
#include <stdlib.h>
#include "meta_program.h"

static int freed = 0;
static void release(DLManagedTensor* tensor) { ++freed; free(tensor->dl_tensor.data); free(tensor); }

static DLManagedTensor* read_tensor(FILE* file) {
  int64_t rank, size = 1, *shape;
  if (fread(&rank, 8, 1, file) != 1) return NULL;
  shape = malloc(8 * rank + 8);
  if (fread(shape, 8, rank, file) != (size_t)rank) return NULL;
  for (int i = 0; i < rank; ++i) size *= shape[i];
  DLManagedTensor* out = calloc(1, sizeof *out);
  void* data = aligned_alloc(64, (4 * size + 63) / 64 * 64);
  out->dl_tensor = (DLTensor){data, {kDLCPU, 0}, rank, {kDLFloat, 32, 1}, shape, NULL, 0};
  if (fread(out->dl_tensor.data, 4, size, file) != (size_t)size) return NULL;
  out->deleter = release;
  return out;
}

int main(int argc, char** argv) {
  char text[4096];
  meta_program program;
  if (meta_program_open(&program, argv[1], kDLCPU, 0)) {
    printf("error: %s\n", meta_program_error(text, sizeof text));
    return 1;
  }
  FILE* file = fopen(argv[2], "rb");
  DLManagedTensor *arguments[8], *results[8];
  int count = 0;
  while (count < 8 && (arguments[count] = read_tensor(file))) ++count;
  int found = meta_program_run(&program, arguments, argc > 3 ? 1 : count, results, 8);
  if (found < 0) {
    printf("error: %s\n", meta_program_error(text, sizeof text));
    return 1;
  }
  for (int i = 0; i < found; ++i) {
    int64_t size = 1;
    for (int j = 0; j < results[i]->dl_tensor.ndim; ++j) size *= results[i]->dl_tensor.shape[j];
    for (int64_t j = 0; j < size; ++j) printf("%.9g ", ((float*)results[i]->dl_tensor.data)[j]);
    printf("\n");
    results[i]->deleter(results[i]);
  }
  meta_program_close(&program);
  printf("%d freed\n", freed - count);
  return 0;
}
"""


class Counter(meta.Model):
    def build(self) -> None:
        self.linear = nn.Linear(3, 2)
        self.buffer("calls", meta.zeros((1,)))

    @meta.trace
    def forward(self, x: Any) -> Any:
        self.calls.update(self.calls + 1.0)  # type: ignore[attr-defined]
        return meta.gelu(self.linear(x)), self.calls * 10.0  # type: ignore[attr-defined]


@pytest.fixture
def library(tmp_path: Path) -> tuple[Path, Any, Any]:
    """A library, the executor that it was saved from, and its input."""
    model = Counter().infer_mode()
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(model)
    x = meta.random.normal((2, 3))
    executor.program(x)
    digest = executor.save(tmp_path / "model.so", format="library")
    assert digest == hashlib.sha256((tmp_path / "model.so").read_bytes()).hexdigest()
    return tmp_path / "model.so", executor, x


def _arguments(path: Path, x: Any) -> list[np.ndarray[Any, Any]]:
    """The arguments of "main", read from the file beside the library."""
    arrays = meta.load(f"{path}.safetensors")
    with safetensors.reading(f"{path}.safetensors") as file:
        listed = json.loads(file.metadata["meta.program"])["arguments"]
    return [x.numpy() if each["role"] == "input" else arrays[each["name"]].numpy(copy=True) for each in listed]


def test_the_file_beside_the_library_describes_it(library: tuple[Path, Any, Any]) -> None:
    path, executor, x = library
    with safetensors.reading(f"{path}.safetensors") as file:
        facts = json.loads(file.metadata["meta.program"])
    arguments = {each["name"]: each for each in facts["arguments"]}
    assert facts["device"] == "cpu"
    assert facts["arguments"][0] == {
        "name": "x",
        "role": "input",
        "dtype": "float32",
        "shape": [2, 3],
        "updated": False,
    }
    assert arguments["linear.w"]["role"] == "state"
    assert arguments["calls"]["updated"] is True
    assert facts["results"] == [{"dtype": "float32", "shape": [2, 2]}, {"dtype": "float32", "shape": [1]}]
    assert (
        meta.load(f"{path}.safetensors")["linear.w"].tolist()
        == dict(executor.program(x).record.state)["linear.w"].tolist()
    )


def test_the_library_runs_on_the_runtime_of_tvm(library: tuple[Path, Any, Any]) -> None:
    path, executor, x = library
    module = tvm.load_library(str(path))["vm_load_executable"]()
    module["vm_initialization"](1, 0, 2)
    arguments = [meta.array(value) for value in _arguments(path, x)]
    for calls in (1.0, 2.0):
        y, count = module["main"](*(value._data for value in arguments))
        assert count.numpy().tolist() == [10.0 * calls]
        assert y.numpy().tolist() == executor(x)[0].tolist()


@pytest.mark.skipif(shutil.which("cc") is None or os.name != "posix", reason="needs a C compiler")
def test_c_calls_the_library(library: tuple[Path, Any, Any], tmp_path: Path) -> None:
    import tvm as compiler
    import tvm_ffi

    path, executor, x = library
    includes = Path(tvm_ffi.__file__).parent / "include"
    folders = [Path(tvm_ffi.__file__).parent / "lib", Path(compiler.__file__).parent / "lib"]
    (tmp_path / "caller.c").write_text(CALLER)
    command = [
        "cc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-o",
        str(tmp_path / "caller"),
        str(tmp_path / "caller.c"),
    ]
    command += [f"-I{includes}", f"-I{Path(saved.__file__).parent}"]
    command += [flag for folder in folders for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    built = subprocess.run(
        [*command, "-Wl,--no-as-needed", "-ltvm_ffi", "-ltvm_runtime"], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    with (tmp_path / "arguments").open("wb") as file:
        for value in _arguments(path, x):
            file.write(np.array([value.ndim, *value.shape], "int64").tobytes())
            file.write(value.astype("float32").tobytes())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(tmp_path / "caller"), *arguments], capture_output=True, text=True)

    completed = run(str(path), str(tmp_path / "arguments"))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    first, second, freed = completed.stdout.splitlines()
    expected, calls = executor(x)
    np.testing.assert_array_equal(np.array(first.split(), "float32"), expected.numpy().ravel())
    assert [float(second)] == calls.tolist() == [10.0]
    assert freed == "0 freed", "every argument is freed once"
    wrong = run(str(path), str(tmp_path / "arguments"), "one argument")
    assert wrong.returncode == 1
    assert wrong.stdout.startswith("error: ")
    without_library = run(str(tmp_path / "missing.so"), str(tmp_path / "arguments"))
    assert without_library.returncode == 1
    assert "missing.so" in without_library.stdout


def test_programs_that_are_no_library(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    executor = meta.vm.compile(meta.trace(lambda x: meta.matmul(x, x)))
    with meta.with_dialect("reference"):
        other = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))
    other.program(meta.ones((2, 2)))
    with pytest.raises(NotSupportedError, match=r"the program calls reference.tanh; expected only kernels of TVM"):
        other.save(path, format="library")
    executor.program(meta.ones((2, 2)))
    executor.program(meta.ones((3, 3)))
    with pytest.raises(ArgumentError, match=r"is compiled for 2 combinations of arguments; expected one for a library"):
        executor.save(path, format="library")
    with meta.with_dialect("tvm"):
        unknown = meta.vm.compile(meta.trace(lambda x: meta.argwhere(x)))
    unknown.program(meta.ones((2, 2)))
    with pytest.raises(NotSupportedError, match=r"results of unknown size, for which it calls Python; expected"):
        unknown.save(path, format="library")
    assert not list(tmp_path.iterdir())
