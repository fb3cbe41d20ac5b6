"""Ctrl-C while kernels and programs are compiled is a KeyboardInterrupt, after which everything works."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import meta
from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library, runtime
from tests.python.kernels_in_memory import forget_kernels, forget_programs


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), progress.deferred():  # noqa: PT012
        with progress.deferred():
            interrupt()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_an_interrupt_is_raised_between_steps() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), progress.compiling("step"):  # noqa: PT012
        interrupt()
        done.append("before")
        progress.advance()
        done.append("after")
    assert done == ["before"]


def test_a_block_without_end_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.monotonic() + 2
    with pytest.raises(KeyboardInterrupt), progress.deferred():  # noqa: PT012
        interrupt()
        monkeypatch.setattr(progress.time, "monotonic", lambda: later)
        interrupt()
        pytest.fail("the second interrupt was not raised")


def test_handlers_of_users_are_called_and_other_threads_left_alone() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: calls.append(number))
    try:
        with progress.deferred():
            interrupt()
            assert calls == []
        assert calls == [signal.SIGINT]
        thread = threading.Thread(target=lambda: progress.deferred().__enter__())
        thread.start()
        thread.join()
        interrupt()
        assert len(calls) == 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_of_tvm_do_not_hide_an_interrupt() -> None:
    """A function that TVM calls is interrupted."""

    def visit(_: Any) -> None:
        interrupt()

    variable = tvm.te.var("i", "int64")
    with pytest.raises(KeyboardInterrupt), library.compiling("test"):
        tvm.structural_walk(variable + 1, (type(variable), visit))


@pytest.mark.parametrize("where", ["kernel", "program", "import"])
def test_everything_works_after_an_interrupt(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    forget_kernels()
    forget_programs()

    def run() -> float:
        if where == "program":
            return meta.vm.compile(meta.trace(lambda x: meta.tanh(x) + 0.5))(meta.zeros((2,)))[0].item()
        return (meta.tanh(meta.zeros((2,))) + 0.5)[0].item()

    owner, name = {
        "import": (runtime.importlib, "import_module"),
        "kernel": (tvm, "build_tir"),
        "program": (tvm, "relax_build"),
    }[where]
    original = getattr(owner, name)

    def interrupted(*args: Any, **options: Any) -> Any:
        interrupt()
        return original(*args, **options)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        runtime.import_module("tvm.te") if where == "import" else run()
    monkeypatch.setattr(owner, name, original)
    assert run() == 0.5
