"""Parallel loops of TVM's kernels in teams of torch's OpenMP."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import launcher, library
from meta.backend.tvm import target as targets

torch = pytest.importorskip("torch")

TEAM = 3


class Environment(ctypes.Structure):
    """The team as a loop body sees it."""

    _fields_ = (("counters", ctypes.c_void_p), ("size", ctypes.c_int32))


Body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Environment), ctypes.c_void_p)


@pytest.fixture
def launch() -> Generator[Any, None, None]:
    """The launcher as a C function, with teams of `TEAM` threads."""
    launcher.prepare()
    launcher.follow_torch()
    functions = launcher._openmp()
    if functions is None:
        pytest.skip("torch has an OpenMP without the functions of libgomp")
    module, threads = launcher._launcher(), torch.get_num_threads()
    module["configure"](*functions, 64)
    torch.set_num_threads(TEAM)
    yield ctypes.CFUNCTYPE(ctypes.c_int, Body, ctypes.c_void_p, ctypes.c_int)(module["address"]())
    torch.set_num_threads(threads)
    module["configure"](*functions, launcher._most_threads())


def team(launch: Any, tasks: int = 0) -> list[tuple[int, int]]:
    """(number, size of the team) of each call of a loop body, sorted."""
    calls: list[tuple[int, int]] = []

    def body(number: int, environment: Any, data: int) -> int:
        calls.append((number, environment.contents.size))
        return 0

    assert launch(Body(body), None, tasks) == 0
    return sorted(calls)


@pytest.mark.parametrize(("tasks", "size"), [(0, TEAM), (1, 1), (2, 2), (5, 5)])
def test_each_thread_of_a_team_runs_the_body_once(launch: Any, tasks: int, size: int) -> None:
    assert team(launch, tasks) == [(number, size) for number in range(size)]


def test_torch_decides_on_the_number_of_threads(launch: Any) -> None:
    torch.set_num_threads(2)
    assert team(launch) == [(0, 2), (1, 2)]
    teams: list[Any] = []
    thread = threading.Thread(target=lambda: teams.append(team(launch)))
    thread.start()
    thread.join()
    assert teams == [[(0, 2), (1, 2)]]


def test_nested_loops_run_in_one_thread(launch: Any) -> None:
    inner: list[Any] = []

    def body(number: int, environment: Any, data: int) -> int:
        inner.append(team(launch))
        return 0

    assert launch(Body(body), None, 0) == 0
    assert inner == [[(0, 1)]] * TEAM


def test_the_code_of_a_body_that_fails_is_returned(launch: Any) -> None:
    assert launch(Body(lambda number, environment, data: -number), None, 2) == -1
    assert launch(Body(lambda number, environment, data: -7), None, 1) == -7
    assert team(launch) == [(number, TEAM) for number in range(TEAM)]


def test_threads_of_a_team_meet_at_barriers(launch: Any) -> None:
    barrier = ctypes.CDLL(None).TVMBackendParallelBarrier
    barrier.argtypes = [ctypes.c_int, ctypes.POINTER(Environment)]
    arrived: list[int] = []
    complete: list[bool] = []

    def body(number: int, environment: Any, data: int) -> int:
        arrived.append(number)
        barrier(number, environment)
        complete.append(len(arrived) == TEAM)
        return 0

    assert launch(Body(body), None, 0) == 0
    assert complete == [True] * TEAM


@pytest.fixture(scope="module")
def doubled() -> Any:
    """A compiled kernel with a parallel loop, y = 2 x over 64 numbers, which refuses negative ones."""
    launcher.prepare()
    x = tvm.te.placeholder((64,), "float32")
    function = tvm.create_prim_func([x, tvm.te.compute((64,), lambda i: x[i] * 2)])
    schedule = tvm.Schedule(function)
    block = schedule.get_sblock("compute")
    schedule.parallel(schedule.get_loops(block)[0])
    function = schedule.mod["main"]
    source, loop = function.params[0], function.body.block.body
    with tvm.IRBuilder() as builder, tvm.script_tirx.serial(0, 1):
        values = tvm.script_tirx.buffer_proxy(source)
        with tvm.script_tirx.Assert(values[loop.loop_var] >= 0, "a number is negative", "ValueError"):
            tvm.script_tirx.evaluate(0)
    checked = tvm.SeqStmt([builder.get(), loop.body])
    loop = tvm.For(loop.loop_var, loop.min, loop.extent, loop.kind, checked)
    block = function.body.block
    block = tvm.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, loop)
    function = function.with_body(tvm.SBlockRealize([], True, block))
    return library.compile_functions({"doubled": function}, targets.target("cpu"))["doubled"]


def test_errors_of_kernels_reach_the_caller(launch: Any, doubled: Any) -> None:
    x = np.arange(64, dtype="float32")
    for position in (0, 63):
        wrong = x.copy()
        wrong[position] = -1
        with pytest.raises(ValueError, match="a number is negative"):
            doubled(tvm.from_dlpack(wrong), tvm.from_dlpack(np.empty_like(x)))
    result = np.empty_like(x)
    doubled(tvm.from_dlpack(x), tvm.from_dlpack(result))
    np.testing.assert_array_equal(result, 2 * x)


def test_several_python_threads_launch_at_once(launch: Any, doubled: Any) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).random(64, dtype="float32")
        result = np.empty_like(x)
        source, target = tvm.from_dlpack(x), tvm.from_dlpack(result)
        for _ in range(50):
            result[...] = 0
            doubled(source, target)
            wrong.append(int((result != 2 * x).sum()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 150


_PROGRAM = """
import sys
import numpy as np
import meta
from meta.backend.tvm import launcher

x = np.random.default_rng(0).random((256, 128), dtype="float32")
first = meta.exp(meta.array(x)).numpy()
before = "torch" in sys.modules, launcher.is_shared()
import torch, meta.backend.torch.bridge
assert (meta.exp(meta.array(x)).numpy() == first).all()
print(*before, launcher.is_shared())
"""


def run(**variables: str) -> str:
    environment = {**os.environ, "TVM_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", **variables}
    process = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch may have another OpenMP")
def test_kernels_from_disk_run_before_and_after_torch_is_loaded() -> None:
    run()
    assert run() == "False False True"
    assert run(META_THREAD_POOL="tvm") == "False False False"


def test_an_unknown_pool_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_THREAD_POOL", "mine")
    with pytest.warns(UserWarning, match="META_THREAD_POOL='mine' is not one of openmp, tvm; openmp is used"):
        assert launcher._pool() == "openmp"


@pytest.mark.parametrize(("text", "most"), [("", launcher._UNBOUNDED), ("3", 3), ("0", launcher._UNBOUNDED)])
def test_tvm_num_threads_bounds_teams(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", text)
    assert launcher._most_threads() == most
