"""Programs as C give the results of the executor: on this machine under sanitizers, and emulated."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.deploy import page
from benchmarks.deploy.machines import (
    DRIVER,
    HOST,
    MACHINES,
    Machine,
    build,
    decode,
    executor_of,
    expected,
    relative_error,
    run,
    write_program,
)
from benchmarks.deploy.networks import Case
from benchmarks.deploy.rows import Row, rows
from meta.backend.tvm.cpu import CpuTarget
from tests.python.deploy.programs import CASES, operator_inputs, operators, operators_with_halves, require

pytestmark = pytest.mark.usefixtures("remove_operators")

NETWORKS = {
    "aarch64": ("lenet", "bert", "unet"), "riscv64": ("mlp", "gpt", "relay", "onnx"), "armv7": ("lenet", "lstm"),
    "x86-64": ("mlp",), "wasm32": ("lenet", "gpt", "own_operator"),
}  # fmt: skip
"""The rows of `python -m benchmarks.deploy` that are cheap; each network is on a machine."""
EXACT = ("where", "sort", "take", "gather", "half_product", "uniform", "max")
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}


@pytest.mark.parametrize("name", ["host", *MACHINES])
def test_results_are_the_executors(name: str, tmp_path: Path) -> None:
    machine = MACHINES.get(name, HOST)
    require(machine)
    for program, case in CASES.items():
        written = write_program(tmp_path, program, executor_of(case, machine.target, machine.cpu), case.calls[0])
        assert written.text.arena == written.intermediates, program
    binary = build(tmp_path, machine, DRIVER, list(CASES))
    for program, case in CASES.items():
        wanted = [x for call in expected(case, plain=name != "host") for x in call]
        data, _ = run(machine, binary, program, case.calls, threads=2 if program == "products" else 1)
        errors = [relative_error(*pair) for pair in zip(decode(data, wanted), wanted, strict=True)]
        # The kernels of this machine are the executor's; others sum in another order.
        assert max(errors) <= (0.0 if name == "host" else 1e-6), program


@pytest.mark.parametrize("name", list(MACHINES))
def test_networks_are_within_the_limits(name: str) -> None:
    require(MACHINES[name])
    missed = [str(row) for row in rows([name], NETWORKS[name]) if not row.holds]
    assert not missed


def test_rows_that_miss_a_limit() -> None:
    row = Row("aarch64", "mlp", "step", {5: 1e-7, 50: 1e-5}, 64, 64, 9, 99, 30_000, 2_000, 20_000)
    assert row.holds
    for change in ({"errors": {5: 2e-6}}, {"errors": {5: np.inf}}, {"planned": 32}, {"runtime": 70_000},
                   {"network": "lenet", "kernels": 150_000}):  # fmt: skip
        assert not replace(row, **change).holds
        assert "MISSES" in str(replace(row, **change))
    assert relative_error(np.array([np.nan]), np.array([1.0])) == np.inf
    tables = page.tables({("aarch64", "mlp", "step"): asdict(row)})
    assert "| mlp | step | 1e-7, 1e-5 |  |" in tables
    assert "| mlp | 30,000 | 2,000 | 64 | 64 | 9 |" in tables


@cache
def operator_values() -> dict[str, Any]:
    """What this machine computes, with all dialects."""
    meta.random.seed(11)
    return {name: y.numpy() for name, y in meta.vm.compile(operators_with_halves)(*operator_inputs()).items()}


HALVES = CpuTarget("riscv64-linux-gnu", "generic-rv64", ("+m", "+a", "+f", "+d", "+c", "+zfh"), "lp64d")
OPERATORS = {
    **MACHINES,
    "riscv64 with float16": Machine(
        HALVES, ("qemu-riscv64", "-cpu", "rv64,Zfh=true", "-L", "/usr/riscv64-linux-gnu"), "qemu-user"
    ),
}


@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators_on_other_machines(name: str, tmp_path: Path) -> None:
    machine = OPERATORS[name]
    require(machine)
    function = operators if name in ("riscv64", "wasm32") else operators_with_halves
    meta.random.seed(11)
    write_program(tmp_path, "operators", executor_of(Case(lambda: function, ()), machine.target), operator_inputs())
    binary = build(tmp_path, machine, DRIVER, ["operators"])
    wanted = dict(list(operator_values().items())[: None if function is operators_with_halves else -4])
    data, _ = run(machine, binary, "operators", [operator_inputs()])
    wrong = []
    for (key, x), y in zip(wanted.items(), decode(data, list(wanted.values())), strict=True):
        limit = 0 if x.dtype.kind in "biu" or key in EXACT else TOLERANCE[str(x.dtype)]
        difference = np.abs(y.astype("float64") - x.astype("float64")).max() / max(np.abs(x.astype("float64")).max(), 1)
        if not difference <= limit:
            wrong.append((key, difference))
    assert not wrong


def test_threads_have_programs_of_their_own(tmp_path: Path) -> None:
    """Under the sanitizer of threads, which sees what the runtime does, but not inside of kernels."""
    machine = Machine(None, flags=("-fsanitize=thread",))
    require(machine)
    case = CASES["products"]
    write_program(tmp_path, "products", executor_of(case, None), case.calls[0])
    binary = build(tmp_path, machine, Path(__file__).with_name("two_threads.c"), ["products"])
    completed = subprocess.run([str(binary)], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in completed.stderr:
        pytest.skip("the sanitizer of threads does not run on this kernel")
    assert completed.returncode == 0, completed.stdout + completed.stderr
