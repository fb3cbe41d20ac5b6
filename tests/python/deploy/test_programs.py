"""Programs as C give the results of the executor: on this machine under sanitizers, and emulated."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.python.deploy.building import MACHINES, build, decode, encode, executor_of, expected, write_program
from tests.python.deploy.programs import CASES

DRIVER = Path(__file__).with_name("driver.c")
_known = cache(lambda name: expected(CASES[name]))


@pytest.fixture(scope="module", params=list(MACHINES))
def binary(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The machine, and the binary with all programs."""
    machine = MACHINES[request.param]
    machine.require()
    folder = tmp_path_factory.mktemp(request.param)
    for name in machine.names:
        write_program(folder, name, executor_of(CASES[name], machine.target), CASES[name].calls[0])
    return request.param, build(folder, machine, DRIVER, machine.names)


@pytest.mark.parametrize("name", list(CASES))
def test_results_are_the_executors(binary: tuple[str, Path], name: str) -> None:
    machine, path = binary
    if name not in MACHINES[machine].names:
        pytest.skip(f"{machine} runs five of the programs")
    case, want = CASES[name], _known(name)
    data = b"".join(encode(call) for call in case.calls)
    threads = "2" if name == "products" else "1"
    command = [*MACHINES[machine].emulator, str(path), str(path.parent), name, threads, str(len(case.calls))]
    completed = subprocess.run(command, input=data, capture_output=True, timeout=60)
    assert completed.returncode == 0, completed.stderr.decode()
    for actual, wanted in zip(decode(completed.stdout, want), want, strict=True):
        if machine == "host":  # the kernels are the same
            np.testing.assert_array_equal(actual, wanted)
        else:
            largest = float(np.abs(wanted).max()) if wanted.size else 0.0
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=case.tolerance * max(largest, 1e-30))
