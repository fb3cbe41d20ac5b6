"""Kernels and programs in memory are bounded, and dropped ones are unloaded."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tvm import topi

import meta
from meta.backend.tvm import kernel
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.cache import CacheWarning, default_max_kernels
from meta.dim import sym
from meta.ir.type import tensor_type
from meta.schema import Arg, Int, Schema, Tensor
from meta.vm.build import executables
from tests.python.kernels_in_memory import forget_kernels, forget_programs

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory map of the process")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    forget_kernels()
    yield
    forget_kernels()


@pytest.fixture(name="scaled")
def _scaled() -> Iterator[Any]:
    """An operator with a kernel for each value of its attribute."""
    schema = Schema("scaled_by", Arg("x", Tensor), Arg("n", Int, 1))
    yield meta.define("scaled_by", schema, tvm=lambda x, n: topi.multiply(x, float(n)), pattern="elemwise",
                      gradient="non_differentiable")(lambda x, n: x)  # fmt: skip
    meta.unregister("scaled_by")


def loaded_libraries(folder: Path) -> int:
    """The number of libraries of a cache that are in memory."""
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({path for line in lines if str(folder) in (path := line.split(maxsplit=5)[-1])})


@linux
def test_kernels_in_memory_are_bounded(scaled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_KERNELS", "4")
    x = meta.ones((2,))
    for n in [*range(9), 0, 1]:
        assert scaled(x, n).tolist() == [n] * 2
        assert len(kernel._kernels.keys() | kernel._older.keys()) <= 4
        assert loaded_libraries(tmp_path) <= 5  # one is of `ones`, whose runner may hold it until the next eviction


def test_kernels_in_use_stay(scaled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_KERNELS", "6")
    x, loaded = meta.ones((2,)), list[str]()
    original = kernel._symbol
    monkeypatch.setattr(kernel, "_symbol", lambda spec, f: loaded.append(spec.name) or original(spec, f))
    for n in range(12):
        with meta.with_dialect("tvm"):
            meta.tanh(x)
        scaled(x, n)
    assert loaded.count("tanh") == 1
    assert loaded.count("scaled_by") == 12


def test_a_runner_that_is_held_keeps_its_kernel(scaled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_KERNELS", "2")
    x = meta.ones((2,))
    tensor = TensorSpec((2,), "float32")
    held = kernel.build(KernelSpec("held", lambda x: topi.add(x, x), (tensor,), (tensor,), "elemwise")).function
    for n in range(6):
        scaled(x, n)
    gc.collect()
    out = meta.zeros((2,))
    held(x._data, out._data)
    assert out.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("value", ["many", "1", "-3", "9" * 20])
def test_invalid_bounds_are_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_KERNELS", value)
    with pytest.warns(CacheWarning, match=r"META_KERNELS=.* is not a number of kernels from 2 to"):
        assert default_max_kernels() == 1024


LARGE = 10_000_000  # floats; the C library returns larger blocks than 32 MiB to the system at once


def resident_mebibytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@linux
def test_results_of_dropped_programs_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "MAX_LOADED", 1)
    before = 0.0
    for n in range(1, 8):
        x = meta.ones((LARGE + 2048 * n,))
        meta.vm.compile(meta.trace(lambda x: meta.tanh(x * 2.0) + 1.0))(x)
        before = before or resident_mebibytes()
    assert resident_mebibytes() - before < 120  # of 6 further results of 38 MiB


@linux
def test_results_of_other_sizes_are_freed() -> None:
    traced = meta.trace(lambda x: meta.tanh(x * 2.0) + 1.0)
    program = meta.vm.compile(traced.record(tensor_type((sym("n"),), "float32")).module)
    before = 0.0
    for n in range(1, 12):
        program(meta.ones((LARGE + 2048 * n,)))
        before = before or resident_mebibytes()
    assert resident_mebibytes() - before < 120  # of 10 further results of 38 MiB


@linux
def test_dropped_programs_are_unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "MAX_LOADED", 2)
    forget_programs()
    for n in range(2, 8):
        x = meta.ones((n, 3))
        assert meta.vm.compile(meta.trace(lambda x: meta.tanh(x * 2.0) + 1.0))(x).shape == (n, 3)
    kernels = 1  # of `ones`
    assert loaded_libraries(tmp_path) <= 2 + kernels
