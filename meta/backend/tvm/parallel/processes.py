"""The processes that compile, started for large programs and reused while programs follow each other.

They are new processes and not forks, because a fork after CUDA has started, or while other threads run, is not safe.
Each imports TVM (0.2 GB); NVRTC takes up to 0.3 GB more. They see no GPU: a context of each would take 0.5 GB of its
memory.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from meta._generated import limits
from meta.backend.tvm.parallel.threads import jobs as jobs
from meta.backend.tvm.parallel.worker import receive, send

Request = tuple[str, bool, list[tuple[str, bytes]]]
"""The arguments of `worker.compile_functions`."""
Code = tuple[bytes, list[tuple[str, bytes]]]
"""Its result."""


def start(kernels: int) -> None:
    """Start the processes for so many kernels, which import TVM while the caller goes on. Those that run are used."""
    process_count = min(jobs(), -(-kernels // limits.KERNELS_FOR_A_WORKER))
    _drop_ended()
    if process_count < 2 or sys.platform == "win32" or not sys.executable:
        return
    _stop_at_exit()
    with contextlib.suppress(OSError):  # no memory or no more processes: those that have started do the work
        while len(_workers) < process_count:
            _workers.append(_start())


def running() -> int:
    """The number of processes that can take work."""
    _drop_ended()
    return len(_workers)


def compile_all(
    requests: Sequence[Request], meanwhile: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, Code | None]]:
    """(number of the request, its code) in the order in which they are done; None for a request that failed, or whose
    process died. Requests begin in the order given.

    meanwhile: called once, after the first requests have begun.

    If the caller stops early, or is interrupted, the processes end."""
    waiting: queue.SimpleQueue[tuple[int, Request]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Code | None]] = queue.SimpleQueue()
    for item in enumerate(requests):
        waiting.put(item)
    used = list(_workers)
    if not used:
        yield from ((number, None) for number in range(len(requests)))
        return
    alive = [len(used)]
    lock = threading.Lock()

    def serve(worker: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                number, request = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                send(worker.stdin, request)  # type: ignore[arg-type]
                answer = receive(worker.stdout)  # type: ignore[arg-type]
            except (OSError, EOFError, ValueError):
                worker.kill()
                done.put((number, None))
                break
            done.put((number, answer[1:] if answer[0] == "compiled" else None))
        end()

    def end() -> None:
        with lock:
            alive[0] -= 1
            if not alive[0]:  # none is left for the rest
                while not waiting.empty():
                    done.put((waiting.get()[0], None))

    finished = False
    try:
        for worker in used:
            try:
                threading.Thread(target=serve, args=(worker,), name="meta compile", daemon=True).start()
            except RuntimeError:  # the process may have no more threads: others serve, or the caller compiles
                end()
        meanwhile()
        for _ in requests:
            yield done.get()
        finished = True
    finally:
        if not finished:
            stop()


def stop() -> None:
    """End the processes."""
    for worker in _workers:
        worker.kill()
        worker.wait()
    _drop_ended()


@cache
def _stop_at_exit() -> None:
    atexit.register(stop)


_workers: list[subprocess.Popen[bytes]] = []
_SETTINGS: Final = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def _start() -> subprocess.Popen[bytes]:
    folders = [str(Path(__file__).parents[4]), *(path for path in sys.path if path)]
    return subprocess.Popen(
        [sys.executable, "-m", "meta.backend.tvm.parallel.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_SETTINGS, "PYTHONPATH": os.pathsep.join(folders)},
        start_new_session=True,  # Ctrl-C is for the caller, which ends them
    )


def _drop_ended() -> None:
    for worker in [w for w in _workers if w.poll() is not None]:
        _workers.remove(worker)
        for stream in (worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()


def _forget() -> None:
    """In a forked child: the processes belong to its parent."""
    for worker in _workers:
        worker.returncode = 0
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
