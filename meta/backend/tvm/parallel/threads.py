"""Threads that compile machine code for the CPU. TVM's passes and LLVM run without Python's lock, and unlike processes
threads need neither a start of seconds nor copies of functions. How many threads, or processes, compile."""

from __future__ import annotations

import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from meta.backend.tvm import library

MOST: Final = 16
_BYTES: Final = 1 << 29
"""Memory that one process may take; together they take at most half of what is free."""


def jobs() -> int:
    """How many threads or processes compile: META_COMPILE_JOBS, by default as many as this process has cores, at most
    16 and as memory allows. 1: only the calling thread. An invalid value is ignored, with a warning."""
    text = os.environ.get("META_COMPILE_JOBS", "").strip()
    if text.isdecimal() and len(text) <= 3 and int(text) > 0:
        return int(text)
    if text:
        problem = f"META_COMPILE_JOBS={text[:20]!r} is not a number of threads or processes from 1 to 999"
        warnings.warn(f"{problem}; the number of cores is used", UserWarning, stacklevel=2)
    return max(1, min(_cores(), _free_memory() // 2 // _BYTES, MOST))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_memory() -> int:
    """Bytes of memory that are available to this process, a guess where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return 8 << 30
    lines = [line for line in text.splitlines() if line.startswith("MemAvailable:")]
    available = int(lines[0].split()[1]) << 10 if lines else 8 << 30
    return min(available, _free_addresses())


def _free_addresses() -> int:
    """Bytes of addresses that the limit of this process leaves (`ulimit -v`)."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    return max(0, limit - pages * resource.getpagesize())


@contextmanager
def compiling_all(
    requests: Sequence[Mapping[str, Any]], target: Any, count: int, *, checks: bool
) -> Generator[Iterator[tuple[int, bytes]], None, None]:
    """Compile while the body of the `with` statement runs; it gets (number of the request, its machine code) in the
    order in which they are done. Requests begin in the order given.

    requests: scheduled functions by name.  target: for the CPU.  count: of threads.  checks: see `lowering.pipeline`.

    Where no thread can be started, the calling one compiles. Raises what the compilation of a request raises. If the
    body stops early, or is interrupted, requests that have begun are finished and others dropped."""

    def compile_request(functions: Mapping[str, Any]) -> bytes:
        return library.object_code(library.compile_functions(dict(functions), target, checks=checks))

    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, bytes | None, BaseException | None]] = queue.SimpleQueue()
    for number in range(len(requests)):
        waiting.put(number)

    def work() -> None:
        with suppress(queue.Empty):
            while True:
                number = waiting.get_nowait()
                try:
                    done.put((number, compile_request(requests[number]), None))
                except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                    done.put((number, None, error))

    def results() -> Iterator[tuple[int, bytes]]:
        for _ in requests:
            if not threads:
                number = waiting.get()
                yield number, compile_request(requests[number])
                continue
            number, code, error = done.get()
            if error is not None:
                raise error
            assert code is not None
            yield number, code

    threads = _started(work, min(count, len(requests)))
    try:
        yield results()
    finally:
        with suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        for thread in threads:
            thread.join()


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """So many threads that run `work`; fewer, perhaps none, where a limit of the process allows no more."""
    threads: list[threading.Thread] = []
    with suppress(RuntimeError, MemoryError):  # "can't start new thread", as under `ulimit -v`
        for number in range(count):
            thread = threading.Thread(target=work, name=f"meta compile {number}")
            thread.start()
            threads.append(thread)
    return threads
