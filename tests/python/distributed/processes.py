"""Starts several processes that run checks together, and collects the outcomes.

They are forks of a process that has imported torch and TVM: `python -m tests.python.distributed.processes FOLDER COUNT
(-c PROGRAM | -m MODULE) ARGUMENT...` writes what each prints to FOLDER/RANK.txt, and prints their exit statuses."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SECONDS = 500
"""The longest that the processes take."""


def environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """The environment variables that torchrun sets for a process, and the network that gloo uses."""
    return {
        "RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_processes(arguments: Sequence[str], processes: int, folder: Path) -> tuple[list[int], list[str]]:
    """Run Python several times at once, as torchrun does. The exit statuses and what each printed."""
    command = [sys.executable, "-m", __name__, str(folder), str(processes), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        try:
            statuses = json.loads(parent.communicate(timeout=SECONDS)[0])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)  # the ranks, if they did not end
    return statuses, [(folder / f"{rank}.txt").read_text() for rank in range(processes)]


def run_checks(modules: str, processes: int, folder: Path, only: str = "") -> dict[str, str]:
    """Check -> "", or the traceback of the ranks on which it failed. only: a part of the checks' names."""
    command = ["-m", "tests.python.distributed.worker", str(folder), modules, only]
    statuses, logs = run_processes(command, processes, folder)
    assert not any(statuses), f"statuses {statuses}:\n" + "\n".join(logs)
    outcomes = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]
    failures = {
        name: [f"rank {rank}:\n{o[name]}" for rank, o in enumerate(outcomes) if o[name]] for name in outcomes[0]
    }
    return {name: "\n".join(traces) for name, traces in failures.items()}


def main(folder: Path, processes: int, arguments: Sequence[str]) -> None:
    import torch.distributed  # noqa: F401

    from meta.backend.tvm import adapter, runtime

    (adapter if arguments[0] == "-m" else runtime).load()  # programs of a few lines need no compiler
    port, ranks = free_port(), list[int]()
    for rank in range(processes):
        ranks.append(os.fork())
        if not ranks[-1]:
            _become(rank, folder, environment(rank, processes, port))
            return _run(*arguments)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in ranks]
    sys.stdout.write(json.dumps(statuses))
    return None


def _become(rank: int, folder: Path, variables: dict[str, str]) -> None:
    """Let this process print to its file, and have the variables of its rank."""
    os.environ.update(variables, CHECKPOINTS=str(folder))
    log = os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)


def _run(kind: str, program: str, *arguments: str) -> None:
    """What `python -c PROGRAM` or `python -m PROGRAM` runs."""
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
