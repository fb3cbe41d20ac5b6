"""Starts several processes that run checks together, and collects the outcomes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 500
"""The longest that the processes take."""


def environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """The environment variables that torchrun sets for a process."""
    return {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_processes(arguments: Sequence[str], processes: int, folder: Path) -> tuple[list[int], list[str]]:
    """Run Python several times at once, as torchrun does. The exit statuses and what each printed."""
    port, started = free_port(), list[Any]()
    for rank in range(processes):
        with (folder / f"{rank}.txt").open("w") as log:
            env = environment(rank, processes, port) | {"CHECKPOINTS": str(folder)}
            command = [sys.executable, *arguments]
            started.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
    try:
        statuses = [process.wait(SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
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
