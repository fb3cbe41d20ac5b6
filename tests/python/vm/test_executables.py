"""Executables: reuse in a process, disk cache, threads, reports."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
from meta.errors import ArgumentError, DeviceError
from meta.ir.builder import Module
from meta.ir.type import tensor_type
from tests.python.backend.tvm.processors import choose_for
from tests.python.kernels_in_memory import forget_programs

from .programs import assert_same, program, randoms


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache, and no executables in memory."""
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("META_CACHE", "1")
    forget_programs()
    return tmp_path


def chain(scale: float = 2.0) -> Module:
    def body(ops, x, w):
        return ops.tanh(ops.multiply(ops.matmul(x, w), scale))

    return program({"x": (64, 64), "w": (64, 64)}, body)


def test_executors_share_one_executable(cache: Path) -> None:
    x, w = randoms((64, 64), (64, 64))
    first, second = meta.vm.compile(chain()), meta.vm.compile(chain())
    assert first.program(x, w).loaded is second.program(x, w).loaded
    assert first.program(x, w) is first.program(w, x)


def test_loads_executables_from_disk(cache: Path) -> None:
    x, w = randoms((64, 64), (64, 64))
    executor = meta.vm.compile(chain())
    expected = executor(x, w)
    report = executor.memory(x, w)
    assert executor.program(x, w).loaded.origin == "built"
    forget_programs()
    again = meta.vm.compile(chain())
    assert again.program(x, w).loaded.origin == "disk"
    assert again.memory(x, w) == report
    assert_same(again(x, w), expected, rtol=0, atol=0)


def test_executables_depend_on_program_dialects_and_options(
    cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    choose_for("avx512f", monkeypatch, request)  # where another dialect than TVM's computes products
    x, w = randoms((64, 64), (64, 64))
    with meta.with_dialect("tvm"):
        on_tvm = meta.vm.compile(chain())
    executors = [meta.vm.compile(chain()), meta.vm.compile(chain(3.0)), meta.vm.compile(chain(), fuse=False), on_tvm]
    loaded = {id(e.program(x, w).loaded) for e in executors}
    assert len(loaded) == len(executors)


@pytest.mark.parametrize("damage", ["truncate", "garbage", "remove"])
@pytest.mark.parametrize("suffix", [".so", ".json"])
def test_rebuilds_damaged_entries(cache: Path, suffix: str, damage: str) -> None:
    x, w = randoms((64, 64), (64, 64))
    expected = meta.vm.compile(chain())(x, w)
    entries = list(cache.glob(f"*/vm_*{suffix}"))
    assert entries
    for path in entries:
        content = path.read_bytes()
        path.unlink()  # the old file is mapped, so it must not be written to
        if damage != "remove":
            path.write_bytes(content[:100] if damage == "truncate" else b"\x00" * 1000)
    forget_programs()
    again = meta.vm.compile(chain())
    assert again.program(x, w).loaded.origin == "built"
    assert_same(again(x, w), expected, rtol=0, atol=0)


def test_without_a_disk_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    x, w = randoms((64, 64), (64, 64))
    executor = meta.vm.compile(chain())
    np.testing.assert_allclose(executor(x, w).numpy(), np.tanh(x.numpy() @ w.numpy() * 2), rtol=1e-3, atol=1e-4)
    assert not list(cache.iterdir())


_OTHER_PROCESS = """
import numpy as np, meta, meta.op.registry
from meta.ir.parser import parse
module = parse('''{text}''')
x = meta.array(np.ones((64, 64), "float32"))
executor = meta.vm.compile(module)
executor(x, x)
print(executor.program(x, x).loaded.origin)
"""


def test_other_processes_share_the_disk_cache(cache: Path) -> None:
    x, w = randoms((64, 64), (64, 64))
    module = chain()
    meta.vm.compile(module)(x, w)
    script = _OTHER_PROCESS.format(text=str(module))
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert completed.stdout.split() == ["disk"], completed.stderr


def test_threads_share_an_executor() -> None:
    executor = meta.vm.compile(chain())
    w = randoms((64, 64), seed=100)[0]
    inputs = [randoms((64, 64), seed=i)[0] for i in range(8)]
    expected = [np.tanh(x.numpy() @ w.numpy() * 2) for x in inputs]
    wrong: list[Any] = []

    def work(x: Any, result: Any) -> None:
        for _ in range(20):
            if not np.allclose(executor(x, w).numpy(), result, rtol=1e-3, atol=1e-4):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_report() -> None:
    module = program({"x": (64, 64), "w": (64, 64)}, lambda ops, x, w: ops.exp(ops.softmax(ops.matmul(x, w))))
    x, w = randoms((64, 64), (64, 64))
    report = meta.vm.compile(module, fuse=False).memory(x, w)
    assert (report.inputs, report.outputs, report.state) == (2 * 64 * 64 * 4, 64 * 64 * 4, 0)
    assert report.intermediates == 2 * 64 * 64 * 4
    assert report.total >= report.inputs + report.outputs + report.intermediates
    assert "intermediates           32,768 bytes" in str(report)


def test_reports_unknown_memory_of_symbolic_programs() -> None:
    n = meta.dim.sym("n")
    module = program({"x": tensor_type((n, 3))}, lambda ops, x: ops.softmax(ops.tanh(x)))
    (x,) = randoms((2, 3))
    report = meta.vm.compile(module).memory(x)
    assert report.dynamic > 0
    assert "of symbolic size are not counted" in str(report)


def test_profile_names_kernels_and_keeps_state() -> None:
    def body(ops, w, x):
        return [ops.sum(ops.matmul(x, w)), ops.subtract(w, ops.multiply(w, 0.1))]

    module = program({"w": (64, 64), "x": (64, 64)}, body, {1: 0})
    w, x = randoms((64, 64), (64, 64))
    before = w.numpy().copy()
    profile = meta.vm.compile(module).profile(w, x, repeat=3)
    np.testing.assert_array_equal(w.numpy(), before)
    ops = [op.split(".")[1] for kernel in profile.kernels for op in kernel.ops]
    assert sorted(ops) == ["matmul", "multiply", "subtract", "sum"]
    assert all(kernel.calls == 1 and kernel.microseconds > 0 for kernel in profile.kernels)
    assert profile.total > 0
    assert "all kernels" in str(profile)


def test_explain_lists_dialects_and_reasons() -> None:
    x, w = randoms((64, 64), (64, 64))
    with meta.with_dialect(["reference", "tvm"]):
        executor = meta.vm.compile(chain())
    lines = executor.explain(x, w).splitlines()
    assert lines[0].split() == ["operator", "calls", "why"]
    assert any(line.startswith("reference.matmul(float32[64x64], float32[64x64])") for line in lines)


@pytest.mark.parametrize("stage", ["traced", "optimized", "relax", "planned"])
def test_text_of_every_stage(stage: str) -> None:
    x, w = randoms((64, 64), (64, 64))
    text = meta.vm.compile(chain()).ir(x, w, stage=stage)
    assert "matmul" in text
    with pytest.raises(
        ArgumentError, match=r"\[ir\] there is no stage 'plan'; expected one of .*did you mean 'planned'"
    ):
        meta.vm.compile(chain()).ir(x, w, stage="plan")


def test_rejects_programs_of_another_device() -> None:
    module = program({"x": tensor_type((2,), "float32", "cuda")}, lambda ops, x: ops.add(x, x))
    executor = meta.vm.compile(module, device="cpu")
    (x,) = randoms((2,))
    with pytest.raises(ArgumentError, match=r"input 'x' is Tensor\[\(2,\), \"float32\"\]; expected .*cuda"):
        executor(x)
    executor = meta.vm.compile(program({"x": (2,)}, lambda ops, x: ops.add(x, x)), device="cuda")
    with pytest.raises(DeviceError, match=r"\[vm\] 'x' is on cpu; expected cuda, for which the program is compiled"):
        executor(x)


def test_long_chains_are_several_kernels() -> None:
    """LLVM takes half a minute for a kernel of 256 operators."""

    @meta.trace
    def negate(x: Any) -> Any:
        for _ in range(limits.FUSED_OPERATORS + 8):
            x = -x * 0.75
        return x

    x = meta.array([1.0, -2.0])
    compiled = meta.vm.compile(negate).program(x)
    sizes = [len(ops) for ops in compiled.loaded.kernels.values()]
    assert max(sizes) <= limits.FUSED_OPERATORS < sum(sizes)
    np.testing.assert_allclose(compiled.run([x]).numpy(), negate(x).numpy(), rtol=1e-5)
