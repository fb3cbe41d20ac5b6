"""This process among those that torchrun started."""

from __future__ import annotations

import math
import os
import socket
import time
from datetime import timedelta
from typing import Any

from meta.errors import ArgumentError, CommunicationError, install_hint
from meta.random import generator
from meta.schema.annotations import checked

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The environment variables that torchrun sets for every process."""


def _torch_distributed() -> Any:
    try:
        import torch.distributed as dist
    except ImportError:
        raise CommunicationError(
            "distributed", "torch is not installed", "torch, whose process groups communicate", install_hint("torch")
        ) from None
    return dist


def init(backend: str | None = None, timeout: float = 600.0) -> None:
    """Join the processes that torchrun started, or adopt the process group that the program has initialised.

    Without torchrun's environment variables there is one process, and every collective is the identity.
    backend: of torch.distributed, None for gloo on the CPU and, where there is a GPU, NCCL on CUDA.
    timeout: seconds that a collective waits for the other ranks before it fails.
    Raises CommunicationError for an incomplete environment, and where the other processes do not answer."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise ArgumentError("distributed.init", f"timeout is {timeout!r}", "a finite number of seconds above 0")
    variables = [name for name in _VARIABLES if os.environ.get(name)]
    dist = None if not variables and not _torch_is_initialized() else _torch_distributed()
    if dist is None:
        return
    if not dist.is_initialized():
        missing = [name for name in _VARIABLES if name not in variables]
        if missing:
            problem = f"the environment has {', '.join(variables)}, but not {', '.join(missing)}"
            raise CommunicationError("distributed.init", problem, "all of them", "start the program with torchrun")
        try:
            _join(dist, backend or _backend(), timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            problem = f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} cannot join: {_first_line(error)}"
            raise CommunicationError(
                "distributed.init", problem, "every process started, and the address of rank 0 reachable"
            ) from error
    from meta.backend.torch.groups import add_group

    add_group("world", tuple(range(dist.get_world_size())), None)


def _join(dist: Any, backend: str, timeout: timedelta) -> None:
    """Initialise the default process group, after all processes have come to the store. By default torchrun keeps one
    store for all of its tries, in which the addresses of processes that have ended remain; a prefix keeps the names of
    tries apart. Raises RuntimeError, which names the ranks that do not answer."""
    from meta.backend.torch.waiting import SILENT_STORE, Store, within

    seconds = timeout.total_seconds()
    until = time.monotonic() + seconds
    rank, ranks, host, port = (os.environ[name] for name in _VARIABLES)
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    options: Any = {"is_master": rank == "0" and not is_agents, "timeout": timeout, "wait_for_workers": False}
    if not options["is_master"]:
        _reach(host, int(port), until)
    kept = within(until - time.monotonic(), SILENT_STORE, dist.TCPStore, host, int(port), int(ranks), **options)
    if is_agents:
        kept = dist.PrefixStore(f"try {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", kept)
    _meet(Store(until, kept), "came", rank, int(ranks))
    arguments: Any = {"timeout": timeout, "store": kept, "rank": int(rank), "world_size": int(ranks)}
    try:
        within(seconds + _ANSWER_SECONDS / 2, SILENT_STORE, dist.init_process_group, backend, **arguments)
    except RuntimeError:
        _meet(Store(time.monotonic() + _ANSWER_SECONDS, kept), "failed", rank, int(ranks))
        raise


def _reach(host: str, port: int, until: float) -> None:
    """Wait until the store listens: torch's client, which tries twice, takes twice the time limit. Raises RuntimeError
    if it does not in time."""
    from meta.backend.torch.waiting import SILENT_STORE

    while True:
        try:
            socket.create_connection((host, port), max(until - time.monotonic(), 0.1)).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(SILENT_STORE) from error
        time.sleep(0.05)


_ANSWER_SECONDS = 3.0
"""How long a rank that cannot join waits for others to report the same."""


def _meet(store: Any, what: str, rank: str, ranks: int) -> None:
    """Tell the others what happened here, and wait for all of them to tell the same. Raises RuntimeError, which names
    those that do not."""
    store.set(f"meta/{what}/{rank}", what)
    missing = set(range(ranks))
    while missing := {other for other in missing if not store.check([f"meta/{what}/{other}"])}:
        if time.monotonic() > store.until - 0.1:
            # The process that keeps the store ends after this: first the others read it.
            store.until += _ANSWER_SECONDS
            store.set(f"meta/{what}/{rank}/read", what)
            others = [f"meta/{what}/{other}/read" for other in range(ranks) if other not in missing]
            while time.monotonic() < store.until - 0.1 and not store.check(others):
                time.sleep(0.02)
            listed = ", ".join(map(str, sorted(missing)))
            raise RuntimeError(f"rank{'s' * (len(missing) > 1)} {listed} did not answer")
        time.sleep(0.02)


def _torch_is_initialized() -> bool:
    import sys

    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def _backend() -> str:
    import torch

    if not torch.cuda.is_available():
        return "gloo"
    torch.cuda.set_device(local_rank())
    return "cpu:gloo,cuda:nccl"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def is_initialized() -> bool:
    """Whether this process has joined others."""
    return _torch_is_initialized()


def rank() -> int:
    """The number of this process, from 0; 0 when there is one process."""
    return int(_torch_distributed().get_rank()) if _torch_is_initialized() else 0


def world_size() -> int:
    """The number of processes; 1 without torchrun."""
    return int(_torch_distributed().get_world_size()) if _torch_is_initialized() else 1


def local_rank() -> int:
    """The number of this process on its machine: the GPU that it uses."""
    text = os.environ.get("LOCAL_RANK", "0")
    if not text.isdecimal():
        raise CommunicationError("distributed", f"LOCAL_RANK is {text!r}", "a number", "start with torchrun")
    return int(text)


def position(group: str, ranks: int) -> int:
    """The position of this process in a group; 0 in a single process, which may plan for any number of ranks."""
    if ranks == 1 or not _torch_is_initialized():
        return 0
    from meta.backend.torch.groups import find_group

    return find_group("distributed", group, ranks).rank


def shutdown() -> None:
    """Leave the other processes. Programs with collectives do not run afterwards."""
    if _torch_is_initialized():
        from meta.backend.torch.groups import remove_groups
        from meta.vm.cuda_graph import forget_recordings

        forget_recordings()
        remove_groups()
        _torch_distributed().destroy_process_group()


@checked
def seed(value: int, same: tuple[str, int] | None = None) -> None:
    """`meta.random.seed`, with another stream of numbers on every rank: for dropout and augmentation. Call it after
    the model was built, for which all ranks use one seed.

    value: an int from 0 to 2**62 - 1.
    same: a group whose ranks get one stream, as `tensor_parallel` needs: `mesh["tp"]`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ArgumentError("distributed.seed", f"the seed is {value!r}", f"an int from 0 to {(1 << 62) - 1}")
    # Philox keys that differ in one bit give unrelated streams, so that any injective mixture will do.
    generator.seed((value * 0x9E3779B97F4A7C15 + (rank() if same is None else _first(*same))) % (1 << 62))


def _first(group: str, ranks: int) -> int:
    """The number of the first rank of a group."""
    if ranks == 1 or not _torch_is_initialized():
        return rank()
    from meta.backend.torch.groups import find_group

    return find_group("distributed.seed", group, ranks).ranks[0]
