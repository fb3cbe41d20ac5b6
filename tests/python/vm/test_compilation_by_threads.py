"""Programs for the CPU whose kernels several threads compile: equal results, calls of kernels in other object files,
failures and interrupts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import progress
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm.parallel import processes, threads
from meta.errors import KernelError
from meta.vm.build import generate
from tests.python.kernels_in_memory import forget_programs

pytestmark = pytest.mark.skipif(library.linker() is None, reason="there is no linker")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Two threads compile programs of two kernels too, and nothing is on disk."""
    monkeypatch.setattr(limits, "KERNELS_FOR_A_WORKER", 2)
    monkeypatch.setenv("META_COMPILE_JOBS", "2")
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))
    forget_programs()
    yield
    forget_programs()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The names of the kernels of each request that threads compile."""
    requests: list[tuple[str, ...]] = []
    compiling_all = threads.compiling_all

    def note(received: Sequence[Any], *args: Any, **options: Any) -> Any:
        requests.extend(map(tuple, received))
        return compiling_all(received, *args, **options)

    monkeypatch.setattr(threads, "compiling_all", note)
    return requests


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether LLVM compiled the calls, of each program."""
    seen: list[bool] = []
    calling_part = generate._calling_part

    def note(*args: Any, compiled: bool, **options: Any) -> Any:
        seen.append(compiled)
        return calling_part(*args, compiled=compiled, **options)

    monkeypatch.setattr(generate, "_calling_part", note)
    return seen


@meta.trace
def program(x: Any, y: Any) -> Any:
    total = meta.softmax(meta.matmul(x, y), axis=-1)
    return meta.sum(meta.exp(total), axis=0), meta.cumsum(total, axis=1), meta.cumsum(x, axis=0)


@meta.trace
def layers(x: Any) -> Any:
    for _ in range(3):
        x = meta.cumsum(meta.softmax(meta.cumsum(x, axis=1), axis=0), axis=0)
    return x


X: Any = np.reshape(np.linspace(-1, 1, 48, dtype=np.float32), (8, 6))


def results() -> list[Any]:
    """The results of a new executor, which compiles."""
    forget_programs()
    return [r.numpy() for r in meta.vm.compile(program)(meta.array(X), meta.array(X.T.copy()))]


def check(actual: list[Any]) -> None:
    x = X.astype(np.float64)
    e = np.exp(x @ x.T)
    total = e / e.sum(-1, keepdims=True)
    for ours, theirs in zip(actual, [np.exp(total).sum(0), total.cumsum(1), x.cumsum(0)], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def check_layers() -> None:
    forget_programs()
    actual = meta.vm.compile(layers)(meta.array(X)).numpy()
    value = X.astype(np.float64)
    for _ in range(3):
        e = np.exp(value.cumsum(1))
        value = (e / e.sum(0, keepdims=True)).cumsum(0)
    np.testing.assert_allclose(actual, value, rtol=1e-5)


def test_results_do_not_depend_on_the_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: list[Any], modes: list[bool]
) -> None:
    several = results()
    assert len(compiled) > 1
    assert modes == [True]
    monkeypatch.setenv("META_COMPILE_JOBS", "1")
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "one"))
    one = results()
    assert len(modes) == 1
    check(several)
    for ours, theirs in zip(several, one, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_programs_load_from_disk() -> None:
    first = results()
    forget_programs()
    executor = meta.vm.compile(program)
    x, y = meta.array(X), meta.array(X.T.copy())
    assert executor.program(x, y).loaded.origin == "disk"
    for ours, theirs in zip(executor(x, y), first, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    check(results())


def test_mostly_kernels_that_a_program_calls_more_than_once(compiled: list[Any], modes: list[bool]) -> None:
    """Bytecode calls them: they are compiled by threads, too."""
    check_layers()
    assert modes == [False]
    assert len({name for request in compiled for name in request}) < 3 * 3


def test_some_kernels_that_a_program_calls_more_than_once(
    monkeypatch: pytest.MonkeyPatch, compiled: list[Any], modes: list[bool]
) -> None:
    """They are compiled with the calls: a name that no code defines would end the process."""
    monkeypatch.setattr(generate, "_stores", lambda f: 1 if "cumsum" in str(f.attrs["global_symbol"]) else 100)

    @meta.trace
    def both(x: Any) -> Any:
        return meta.softmax(meta.cumsum(meta.cumsum(x, axis=1), axis=1), axis=0)

    forget_programs()
    actual = meta.vm.compile(both)(meta.array(X)).numpy()
    e = np.exp(X.astype(np.float64).cumsum(1).cumsum(1))
    np.testing.assert_allclose(actual, e / e.sum(0, keepdims=True), rtol=1e-5)
    assert modes == [True]
    assert [name.split("_")[0] for request in compiled for name in request] == ["softmax"]


def test_a_kernel_that_both_branches_call(monkeypatch: pytest.MonkeyPatch, modes: list[bool]) -> None:
    monkeypatch.setattr(generate, "_stores", lambda f: 1 if "cumsum" in str(f.attrs["global_symbol"]) else 100)

    @meta.trace
    def choose(x: Any) -> Any:
        up = meta.cond(meta.sum(x) > 0.0, lambda: meta.cumsum(x, axis=1), lambda: meta.cumsum(x, axis=1) * 2.0)
        return meta.softmax(up, axis=0)

    forget_programs()
    executor = meta.vm.compile(choose)
    for sign, scale in ((1.0, 1.0), (-1.0, 2.0)):
        x = sign * (np.abs(X) + 1)
        e = np.exp(x.astype(np.float64).cumsum(1) * scale)
        np.testing.assert_allclose(executor(meta.array(x)).numpy(), e / e.sum(0, keepdims=True), rtol=1e-5)
    assert modes == [True]


def test_kernels_with_the_names_of_functions_of_c(
    monkeypatch: pytest.MonkeyPatch, modes: list[bool], compiled: list[Any]
) -> None:
    """The kernel of sin is in another object file than one that is called twice and calls the C library's sin."""
    monkeypatch.setattr(generate, "_stores", lambda f: 100 if str(f.attrs["global_symbol"]) == "sin" else 1)

    @meta.trace
    def waves(x: Any) -> Any:
        y = meta.cumsum(meta.sin(meta.cumsum(meta.sin(x) * 2.0, axis=0)) * 2.0, axis=0)
        return y, meta.sin(y)

    forget_programs()
    x = X.astype(np.float64)
    y = (np.sin((np.sin(x) * 2).cumsum(0)) * 2).cumsum(0)
    for ours, theirs in zip(meta.vm.compile(waves)(meta.array(x)), (y, np.sin(y)), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)
    assert modes == [True]
    assert compiled == [("sin",)]


def test_large_programs_are_called_by_bytecode(monkeypatch: pytest.MonkeyPatch, modes: list[bool]) -> None:
    monkeypatch.setattr(limits, "COMPILED_BINDINGS", 0)
    check(results())
    assert modes == [False]


@pytest.mark.parametrize("error", [OSError("no space left"), ValueError("no such vector")])
def test_failures(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Without space for files, one thread compiles into memory; errors of TVM are those of programs of few kernels."""

    def fail(_: Any) -> bytes:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(library, "object_code", fail)
        if isinstance(error, OSError):
            check(results())
        else:
            with pytest.raises(KernelError, match=r"\[vm\] TVM's compiler raised ValueError: no such vector"):
                results()
    check(results())


def test_an_interrupt_leaves_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    linked_library = generate.linked

    with monkeypatch.context() as patch:

        def interrupted(*args: Any) -> Any:
            patch.setattr(progress, "advance", interrupt)
            return linked_library(*args)

        patch.setattr(generate, "linked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            results()
    assert not [t for t in threading.enumerate() if t.name.startswith("meta compile")]
    check(results())


def test_many_threads_compile_the_same_code() -> None:
    """TVM and LLVM keep nothing that a compilation in another thread changes."""
    from meta.backend.tvm import target as targets
    from meta.backend.tvm.kernel import unscheduled
    from meta.backend.tvm.schedule.patterns import schedule
    from meta.backend.tvm.spec import KernelSpec, TensorSpec

    x, target = TensorSpec((16, 24), "float32"), targets.target("cpu")

    def compute(k: int) -> Any:
        return lambda a: tvm.te.compute((16, 24), lambda i, j: tvm.tirx.exp(a[i, j]) * float(k))

    functions = [
        schedule(
            unscheduled(KernelSpec(f"f{k % 4}", compute(k % 4), (x,), (x,), "elemwise")).function, "elemwise", target
        )
        for k in range(24)
    ]
    requests = [{f"f{k % 4}": f} for k, f in enumerate(functions)]
    with threads.compiling_all(requests, target, 8, checks=False) as compiled:
        codes = dict(compiled)
    assert sorted(codes) == list(range(24))
    for k in range(24):
        assert codes[k] == codes[k % 4]


def test_small_programs_and_one_job_use_no_threads(monkeypatch: pytest.MonkeyPatch, compiled: list[Any]) -> None:
    monkeypatch.setenv("META_COMPILE_JOBS", "1")
    check(results())
    monkeypatch.setenv("META_COMPILE_JOBS", "2")
    monkeypatch.setattr(limits, "KERNELS_FOR_A_WORKER", 100)
    check(results())
    assert not compiled
    assert processes.running() == 0


def test_without_more_threads_the_calling_one_compiles(
    monkeypatch: pytest.MonkeyPatch, compiled: list[Any], tmp_path: Path
) -> None:
    """As under `ulimit -v` or `ulimit -u`: after none, or after one thread."""
    start = threading.Thread.start
    for allowed in (0, 1):
        started: list[Any] = []

        def refuse(thread: threading.Thread, started: list[Any] = started, allowed: int = allowed) -> None:
            if len(started) == allowed:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / str(allowed)))
        check(results())
        assert len(started) == allowed
        assert compiled


def test_a_limit_of_addresses_limits_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.delenv("META_COMPILE_JOBS")
    monkeypatch.setattr(threads, "_cores", lambda: 64)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, resource.RLIM_INFINITY))
    assert threads.jobs() == 1
