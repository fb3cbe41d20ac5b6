"""Programs whose kernels several processes compile: equal results, and what happens when a process fails or ends.

Processes compile for GPUs. Here they compile for the CPU, as threads do otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import progress
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import unscheduled
from meta.backend.tvm.parallel import processes, threads
from meta.backend.tvm.parallel.serialization import UntransferableError, from_bytes, to_bytes
from meta.backend.tvm.schedule.patterns import schedule
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.backend.tvm.workarounds.select import opaque_select
from meta.vm.build import generate
from tests.python.kernels_in_memory import forget_programs

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="programs are compiled by one process on Windows"),
    pytest.mark.skipif(library.linker() is None, reason="there is no linker"),
]


@pytest.fixture(autouse=True)
def small_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Several processes compile small programs too, and nothing is on disk."""
    monkeypatch.setattr(generate, "BY_THREADS", frozenset[str]())
    monkeypatch.setattr(limits, "PROCESSES_FROM", 2)
    monkeypatch.setattr(limits, "KERNELS_PER_PROCESS", 2)
    monkeypatch.setattr(limits, "KERNELS_FOR_A_WORKER", 1)
    monkeypatch.setenv("META_COMPILE_JOBS", "2")
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))
    forget_programs()
    yield
    forget_programs()


@pytest.fixture(scope="module", autouse=True)
def _no_processes_left() -> Iterator[None]:
    yield
    processes.stop()


@meta.trace
def program(x: Any, y: Any) -> Any:
    total = meta.softmax(meta.matmul(x, y), axis=-1)
    return meta.sum(meta.exp(total), axis=0), meta.cumsum(total, axis=1), meta.cast(x, "bfloat16")


X: Any = np.reshape(np.linspace(-1, 1, 48, dtype=np.float32), (8, 6))


def results() -> list[Any]:
    """The results of a new executor, which compiles."""
    forget_programs()
    actual = meta.vm.compile(program)(meta.array(X), meta.array(X.T.copy()))
    return [r.astype("float32").numpy() for r in actual]


def expected() -> list[Any]:
    product = X.astype(np.float64) @ X.T.astype(np.float64)
    e = np.exp(product - product.max(-1, keepdims=True))
    total = e / e.sum(-1, keepdims=True)
    return [np.exp(total).sum(0), total.cumsum(1)]


def check(actual: list[Any]) -> None:
    for ours, theirs in zip(actual, expected(), strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that this process compiled itself."""
    requests: list[Any] = []
    compile_functions = generate.compile_functions

    def compile_here(*request: Any) -> Any:
        requests.append(request)
        return compile_functions(*request)

    monkeypatch.setattr(generate, "compile_functions", compile_here)
    return requests


def entries(folder: Path) -> dict[str, Any]:
    """The programs in a cache, without their machine code."""
    files = {p.name: p.read_bytes() if p.suffix == ".json" else b"" for p in folder.rglob("vm_*")}
    assert files
    return files


def test_results_and_entries_do_not_depend_on_the_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fallbacks: list[Any]
) -> None:
    several = results()
    assert processes.running() == 2
    assert not fallbacks
    monkeypatch.setenv("META_COMPILE_JOBS", "1")
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "one"))
    one = results()
    check(several)
    for ours, theirs in zip(several, one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert entries(tmp_path / "cache") == entries(tmp_path / "one")


def test_programs_compiled_by_processes_load_from_disk() -> None:
    first = results()
    forget_programs()
    executor = meta.vm.compile(program)
    x, y = meta.array(X), meta.array(X.T.copy())
    assert executor.program(x, y).loaded.origin == "disk"
    for ours, theirs in zip(executor(x, y), first, strict=True):
        np.testing.assert_array_equal(ours.astype("float32").numpy(), theirs)


def test_no_cache(monkeypatch: pytest.MonkeyPatch, fallbacks: list[Any]) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    check(results())
    assert not fallbacks


def test_kernels_that_a_program_calls_more_than_once(fallbacks: list[Any]) -> None:
    """Every call finds the kernel: a name that no code defines would end the process."""

    @meta.trace
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = meta.softmax(meta.cumsum(x, axis=1), axis=0)
        return x

    forget_programs()
    executor = meta.vm.compile(layers)
    actual = executor(meta.array(X)).numpy()
    value = X.astype(np.float64)
    for _ in range(3):
        e = np.exp(value.cumsum(1))
        value = e / e.sum(0, keepdims=True)
    np.testing.assert_allclose(actual, value, rtol=1e-5)
    assert processes.running() == 2
    assert not fallbacks


def test_what_a_killed_process_had_is_compiled_here(fallbacks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    processes.start(100)
    for worker in processes._workers:
        os.kill(worker.pid, signal.SIGSTOP)  # so that they take requests and do not answer

    def kill() -> None:
        time.sleep(0.5)
        for worker in list(processes._workers):
            os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    compile_all = processes.compile_all

    def compile_and_kill(*args: Any) -> Any:
        killer.start()
        return compile_all(*args)

    monkeypatch.setattr(processes, "compile_all", compile_and_kill)
    check(results())
    killer.join()
    assert fallbacks


def test_failures_of_processes_raise_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(processes.compile_all([])) == []
    processes.start(100)
    assert list(processes.compile_all([("{}", True, [])])) == [(0, None)]

    def wrong_bytes(_: Any) -> bytes:
        return b"no function"

    monkeypatch.setattr(generate, "to_bytes", wrong_bytes)
    with pytest.raises((ValueError, EOFError, TypeError)):
        results()


def test_functions_that_cannot_be_sent_are_compiled_here(monkeypatch: pytest.MonkeyPatch, fallbacks: list[Any]) -> None:
    def refuse(_: Any) -> bytes:
        raise UntransferableError("no")

    monkeypatch.setattr(generate, "to_bytes", refuse)
    check(results())
    assert not fallbacks


def test_an_interrupt_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        if progress_stage:
            raise KeyboardInterrupt

    progress_stage: list[str] = []
    stage = progress.stage

    def note(name: str, total: int | None = None) -> None:
        progress_stage[:] = [name] if name == "generate code" else []
        stage(name, total)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "stage", note)
        patch.setattr(progress, "advance", interrupt)
        processes.start(100)
        pids = [worker.pid for worker in processes._workers]
        with pytest.raises(KeyboardInterrupt):
            results()
    assert processes.running() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    check(results())


def test_processes_end_with_their_parent() -> None:
    code = (
        "import os, signal\n"
        "from meta.backend.tvm.parallel import processes\n"
        "processes.start(100)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    import time; time.sleep(20)\n"  # it holds the pipes open
        "    os._exit(0)\n"
        "print(child, *[w.pid for w in processes._workers], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    child, *pids = map(int, completed.stdout.split())
    try:
        assert len(pids) == 2
        deadline = time.monotonic() + 30
        while any(_runs(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        os.kill(child, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return b"parallel.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_forked_child_has_no_processes() -> None:
    processes.start(100)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(processes.running()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"0"
    os.close(reader)
    os.close(writer)
    assert processes.running() == 2


def test_functions_keep_their_content() -> None:
    """Exact arithmetic, approximated functions and selections are operators of meta."""
    x = TensorSpec((6, 8), "bfloat16")

    def compute(a: Any) -> Any:
        def wide(i: Any, j: Any) -> Any:
            return tvm.tirx.exp(a[i, j].astype("float32")) * 2.5 + float("inf")

        def narrow(i: Any, j: Any) -> Any:
            return opaque_select(i < j, whole[i, j], whole[j % 6, i]).astype("bfloat16")

        whole = tvm.te.compute((6, 8), wide)
        return tvm.te.compute((6, 8), narrow)

    source = unscheduled(KernelSpec("test", compute, (x,), (x,), "injective")).function
    for function in (source, schedule(source, "injective", targets.target("cpu"))):
        copy = from_bytes(to_bytes(function))
        tvm.assert_structural_equal(function, copy)
        assert function.script() == copy.script()


def test_data_in_functions_is_not_sent() -> None:
    x = TensorSpec((4,), "float32")

    def copy(a: Any) -> Any:
        return tvm.te.compute((4,), a.__getitem__)

    function = unscheduled(KernelSpec("test", copy, (x,), (x,), "injective")).function
    with pytest.raises(UntransferableError, match="a function contains Tensor"):
        to_bytes(function.with_attr("data", tvm.tensor(np.zeros(3, np.float32))))


def test_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cores", lambda: 64)
    monkeypatch.delenv("META_COMPILE_JOBS")
    monkeypatch.setattr(threads, "_free_memory", lambda: 64 << 30)
    assert threads.jobs() == threads.MOST
    monkeypatch.setattr(threads, "_free_memory", lambda: 3 << 30)
    assert threads.jobs() == 3
    monkeypatch.setattr(threads, "_free_memory", lambda: 0)
    assert threads.jobs() == 1
    monkeypatch.setenv("META_COMPILE_JOBS", "5")
    assert threads.jobs() == 5
    monkeypatch.setenv("META_COMPILE_JOBS", "many")
    with pytest.warns(UserWarning, match="META_COMPILE_JOBS='many' is not a number of threads"):
        assert threads.jobs() == 1


def test_small_programs_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROCESSES_FROM", 100)
    processes.stop()
    check(results())
    assert processes.running() == 0


def test_without_more_threads_the_calling_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    processes.start(100)
    assert processes.running()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert list(processes.compile_all([("{}", True, [])] * 2)) == [(0, None), (1, None)]
