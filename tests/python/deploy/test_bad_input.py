"""Wrong calls of programs as C return codes with texts, under address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import meta
from benchmarks.deploy.machines import DRIVER, HOST, Machine, build, executor_of, run, write_program
from benchmarks.deploy.networks import NETWORKS
from meta.deploy.emit import emit
from meta.deploy.objects import kernel_objects
from meta.deploy.toolchain import RUNTIME
from meta.errors import ArgumentError, NotSupportedError
from tests.python.deploy import altered_calls
from tests.python.deploy.programs import require

pytestmark = pytest.mark.usefixtures("remove_operators")


def test_wrong_calls_return_codes(tmp_path: Path) -> None:
    require(HOST)
    case = NETWORKS["mlp"].case("inference")
    write_program(tmp_path, "mlp", executor_of(case, None), case.calls[0])
    binary = build(tmp_path, HOST, Path(__file__).with_name("bad_input.c"), ["mlp"])
    completed = subprocess.run([str(binary), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_altered_calls_return_codes() -> None:
    """A million calls: python -m tests.python.deploy.altered_calls 1000000"""
    require(HOST)
    assert not altered_calls.run(20_000, seed=1)


@pytest.mark.parametrize(
    ("target", "cpu", "emulator", "missing"),
    [
        ("x86_64-linux-gnu", "x86-64-v3", ("qemu-x86_64", "-cpu", "qemu64"), "ssse3"),
        (
            "aarch64-linux-gnu", "neoverse-v1", ("qemu-aarch64", "-cpu", "cortex-a57", "-L", "/usr/aarch64-linux-gnu"),
            "lse",
        ),
    ],
)  # fmt: skip
def test_other_processors_are_refused(
    tmp_path: Path, target: str, cpu: str, emulator: tuple[str, ...], missing: str
) -> None:
    machine = Machine(target, emulator, "qemu-user", cpu)
    require(machine)
    case = NETWORKS["mlp"].case("inference")
    write_program(tmp_path, "mlp", executor_of(case, target, cpu), case.calls[0])
    binary = build(tmp_path, machine, DRIVER, ["mlp"])
    with pytest.raises(RuntimeError, match=rf"13 mlp is for {target} \({cpu}\); this processor lacks {missing}"):
        run(machine, binary, "mlp", case.calls)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_runtime_compiles_without_warnings(tmp_path: Path, compiler: str) -> None:
    for source in RUNTIME.glob("*.c"):
        command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-c", str(source)]
        try:
            completed = subprocess.run([*command, "-o", str(tmp_path / "x.o")], capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip(f"there is no {compiler} on this machine")
        assert completed.returncode == 0, completed.stderr


def test_programs_that_c_cannot_call() -> None:
    def text(function: object, *inputs: meta.NDArray) -> str:
        with meta.with_dialect("tvm"):
            executor = meta.vm.compile(function)  # type: ignore[call-overload]
        program = executor.program(*inputs)
        return emit(program, kernel_objects(program, fuse=executor.fuse), "x").code

    with pytest.raises(NotSupportedError, match=r"the sizes of the results of argwhere depend on values; expected"):
        text(meta.trace(lambda x: meta.argwhere(x)), meta.ones((2, 2)))
    wide = meta.ones((1,) * 9)
    with pytest.raises(NotSupportedError, match=r"'x' has 9 axes; expected at most 8"):
        text(meta.trace(lambda x: x + 1.0), wide)
    with meta.with_dialect("reference"):
        executor = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))
    program = executor.program(meta.ones((2, 2)))
    with pytest.raises(NotSupportedError, match=r"the program calls reference\.tanh; expected only kernels of TVM"):
        kernel_objects(program, fuse=executor.fuse)


def test_executors_of_several_programs_and_bad_names(tmp_path: Path) -> None:
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))
    executor.program(meta.ones((2,)))
    with pytest.raises(ArgumentError, match=r"the name of the program is 'main'; expected letters"):
        executor.save(tmp_path / "main", format="c")
    executor.program(meta.ones((3,)))
    with pytest.raises(ArgumentError, match=r"is compiled for 2 combinations of arguments; expected one"):
        executor.save(tmp_path / "x", format="c")
    assert not list(tmp_path.iterdir())
