"""Programs as C give the results of the executor: on this machine under sanitizers, and emulated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.python.deploy.building import MACHINES, Machine, build, decode, encode, executor_of, expected, write_program
from tests.python.deploy.programs import CASES

pytestmark = pytest.mark.usefixtures("remove_operators")

DRIVER = Path(__file__).with_name("driver.c")


@pytest.mark.parametrize("name", list(MACHINES))
def test_results_are_the_executors(name: str, tmp_path: Path) -> None:
    """One test for each machine: its programs are linked into one binary, which takes most of the time."""
    machine = MACHINES[name]
    machine.require()
    for program in machine.names:
        case = CASES[program]
        write_program(tmp_path, program, executor_of(case, machine.target), case.calls[0])
    binary = build(tmp_path, machine, DRIVER, machine.names)
    for program in machine.names:
        case, want = CASES[program], expected(CASES[program])
        threads = "2" if program == "products" else "1"
        command = [*machine.emulator, str(binary), str(tmp_path), program, threads, str(len(case.calls))]
        data = b"".join(encode(call) for call in case.calls)
        completed = subprocess.run(command, input=data, capture_output=True, timeout=60)
        assert completed.returncode == 0, f"{program}: {completed.stderr.decode()}"
        for actual, wanted in zip(decode(completed.stdout, want), want, strict=True):
            # The kernels of this machine are the executor's; others sum in another order.
            exact = name == "host" or not wanted.size
            atol = 0.0 if exact else case.tolerance * float(np.abs(wanted).max())
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=atol, err_msg=program)


def test_threads_have_programs_of_their_own(tmp_path: Path) -> None:
    """Under the sanitizer of threads, which sees what the runtime does, but not inside of kernels."""
    machine = Machine(None, "gcc", (), ("-fsanitize=thread",))
    machine.require()
    case = CASES["products"]
    write_program(tmp_path, "products", executor_of(case, None), case.calls[0])
    binary = build(tmp_path, machine, Path(__file__).with_name("two_threads.c"), ["products"])
    completed = subprocess.run([str(binary)], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in completed.stderr:
        pytest.skip("the sanitizer of threads does not run on this kernel")
    assert completed.returncode == 0, completed.stdout + completed.stderr
