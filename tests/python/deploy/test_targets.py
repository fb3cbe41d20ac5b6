"""Programs compiled for another CPU: its names, what the code depends on, and files."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm import target as targets
from meta.backend.tvm.cpu import CpuTarget, parse_target
from meta.deploy.objects import kernel_objects
from meta.errors import ArgumentError, DispatchError, FileError, NotSupportedError
from meta.modes import scoped
from meta.vm.build import executables

X, W = np.ones((16, 64), "float32"), np.ones((64, 32), "float32")


def product(x: Any, w: Any) -> Any:
    return meta.softmax(meta.matmul(meta.relu(x), w), -1)


def compiled(target: Any = "aarch64-linux-gnu", cpu: str | None = "cortex-a72") -> Any:
    return meta.vm.compile(product, target=target, cpu=cpu)


@pytest.mark.parametrize(
    ("text", "triple", "cpu"),
    [
        ("aarch64", "aarch64-linux-gnu", "generic"),
        ("arm64-linux-gnu", "aarch64-linux-gnu", "generic"),
        ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "generic"),
        ("arm-linux-gnueabihf", "armv7-linux-gnueabihf", "generic"),
        ("armv7-unknown-linux-gnueabihf", "armv7-linux-gnueabihf", "generic"),
        ("riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu", "generic-rv64"),
        ("x86-64-linux-gnu", "x86_64-linux-gnu", "x86-64"),
        ("x86_64-pc-linux-musl", "x86_64-linux-musl", "x86-64"),
        ("wasm32", "wasm32-unknown-unknown", "generic"),
        ("wasm32-wasip1", "wasm32-wasi", "generic"),
        ("wasm32-unknown-unknown", "wasm32-unknown-unknown", "generic"),
    ],
)
def test_spellings_of_triples(text: str, triple: str, cpu: str) -> None:
    target = parse_target(text)
    assert (target.triple, target.cpu) == (triple, cpu)
    assert parse_target(target) == target


@pytest.mark.parametrize(
    ("target", "cpu", "problem"),
    [
        (
            "aarch64-linux-gn",
            None,
            r"'aarch64-linux-gn' is no triple .*expected one of .*did you mean 'aarch64-l",
        ),
        ("armv7-linux-gnueabi", None, "is no triple"),
        (7, None, "7 is no triple"),
        ("riscv64-linux-gnu", "cortex-a72", "'cortex-a72' is a processor of aarch64; the target is riscv64-linux-gnu"),
        ("aarch64-linux-gnu", "cortex-a27", r"LLVM knows no processor 'cortex-a27'.* did you mean 'cortex-a"),
        ("x86_64-linux-gnu", "pentium", "pentium lacks 64bit, which x86_64-linux-gnu needs; expected one of alderlake"),
        ("armv7-linux-gnueabihf", "cortex-m4", "cortex-m4 lacks aclass"),
        ("riscv64-linux-gnu", "sifive-s51", "sifive-s51 lacks d"),
    ],
)
def test_other_targets_are_refused(target: Any, cpu: str | None, problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        compiled(target, cpu)


def test_a_gpu_has_no_target() -> None:
    with pytest.raises(ArgumentError, match=r'the programs are for cuda.*; expected the device "cpu"'):
        cpus.chosen_target(meta.device("cuda"), "aarch64", None)


def test_compilation_for_another_machine_asks_this_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> Any:
        raise AssertionError("a fact of this machine")

    compiled().program(X, W)  # what runs here, such as hooks of kernels, is loaded
    monkeypatch.setattr(executables, "runs_here", lambda _: False)
    for module, names in (
        (tvm, ("system_cpu", "system_triple")), (cpus, ("host", "requested_cpu")), (os, ("cpu_count",)),
        (platform, ("machine",)), (targets, ("describe_processor",)),
    ):  # fmt: skip
        for name in names:
            monkeypatch.setattr(module, name, asked)
    monkeypatch.setenv("META_COMPILE_JOBS", "1")
    executor = compiled(cpu="cortex-a53")
    objects = kernel_objects(executor.program(X, W))
    assert objects.cpu == CpuTarget("aarch64-linux-gnu", "cortex-a53")
    assert set(objects.symbols.values()) == {"__tvm_ffi_relu", "__tvm_ffi_matmul", "__tvm_ffi_softmax"}
    assert "tvm.matmul(float32[16x64], float32[64x32])" in executor.explain(X, W)
    with pytest.raises(AssertionError, match="a fact"):
        targets.vector_bits()


@pytest.mark.parametrize(
    ("target", "bits"),
    [
        (CpuTarget("x86_64-linux-gnu", "x86-64"), 128),
        (CpuTarget("x86_64-linux-gnu", "x86-64-v3"), 256),
        (CpuTarget("x86_64-linux-gnu", "x86-64-v4"), 512),
        (CpuTarget("aarch64-linux-gnu", "cortex-a72"), 128),
        (parse_target("riscv64"), 64),
        (parse_target("wasm32-wasi"), 128),
    ],
)
def test_vectors_are_of_the_target(target: CpuTarget, bits: int) -> None:
    here = targets.vector_bits(), targets.identity("cpu")
    with scoped(cpu=target):
        assert targets.vector_bits() == bits
        assert targets.lanes(32) == bits // 32
        assert targets.identity("cpu") != here[1]
        assert meta.exp(meta.zeros((3,))).tolist() == [1.0] * 3, "eager kernels are for this machine"
    assert (targets.vector_bits(), targets.identity("cpu")) == here


def test_only_compiled_kernels_are_chosen() -> None:
    executor = meta.vm.compile(lambda x: meta.matmul(x, x), target="aarch64")
    assert "a function of this machine, not compiled for aarch64" in executor.explain(meta.ones((64, 64)))
    for target, problem in (
        ("riscv64", "riscv64-linux-gnu without zfh or zfhmin"),
        ("wasm32", "wasm32-unknown-unknown"),
    ):
        halves = meta.vm.compile(lambda x: meta.exp(x), target=target)
        with pytest.raises(DispatchError, match=rf"no dialect accepts exp.*no float16 on {problem}"):
            halves.program(meta.ones((4,), "float16"))
    with_halves = CpuTarget("riscv64-linux-gnu", "sifive-x280")
    assert meta.vm.compile(lambda x: meta.exp(x), target=with_halves).program(meta.ones((4,), "float16"))


def test_a_program_for_another_machine_does_not_run() -> None:
    executor = compiled()
    assert executor.memory(X, W).outputs >= 16 * 32 * 4
    for run in (executor, executor.profile):
        with pytest.raises(NotSupportedError, match=r"the program is compiled for aarch64-linux-gnu \(cortex-a72\)"):
            run(X, W)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code for x86-64")
def test_a_program_for_an_older_processor_runs() -> None:
    assert compiled("x86_64-linux-gnu", "x86-64")(X, W).numpy() == pytest.approx(np.full((16, 32), 1 / 32))


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-ld") is None, reason="gcc-aarch64-linux-gnu is not installed")
def test_files_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = meta.vm.compile(product)
    executor.program(X, W)
    path = tmp_path / "product"
    executor.save(path, format="library", target="aarch64-linux-gnu")
    header = path.read_bytes()[:20]
    assert (header[:5], header[16:20]) == (b"\x7fELF\x02", b"\x03\x00\xb7\x00")  # a shared object for AArch64
    digest = executor.save(path, target="aarch64-linux-gnu")
    with pytest.raises(FileError, match="was saved for platform linux aarch64; expected platform "):
        meta.vm.load(path, trust=digest)
    with pytest.raises(NotSupportedError, match="wasm32-wasi has no shared libraries"):
        executor.save(path, target="wasm32-wasi")
    from meta.backend.tvm import library

    library._cross_linker.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NotSupportedError, match=r"cannot be linked.*Debian's package gcc-riscv64-linux-gnu\), ld.lld"):
        executor.save(path, target="riscv64-linux-gnu")
    library._cross_linker.cache_clear()


def test_files_are_the_same_each_time_and_named_by_prefix() -> None:
    program = compiled().program(X, W)
    first, second = kernel_objects(program), kernel_objects(program)
    assert first.files == second.files
    named = kernel_objects(program, prefix="net_")
    assert named.symbols["relu"] == "__tvm_ffi_net_relu"
    assert b"__tvm_ffi_net_relu\0" in named.files[0]
    host = meta.vm.compile(lambda x: meta.linalg.svd(x)[1]).program(meta.ones((4, 4)))
    if host.source.choices.packed():
        with pytest.raises(NotSupportedError, match="the program calls "):
            kernel_objects(host)
