"""Ranks that wait for each other in different places find out, instead of waiting until the timeout.

A place is a collective or an agreement of a group of ranks. All ranks of the group come to its places in one order. A
rank that has waited for a while writes to the store where it waits and how far it came in each of its groups, and reads
what the others wrote. If two ranks have come to one place each to which the other has not, their programs differ.

The store has no time limits: a process that is stopped, and keeps it, would hold up all others. So every question to it
is asked by a thread, for which the rank waits until a deadline.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

POLL = timedelta(seconds=1)
"""How long a rank waits before it looks where the others are."""

_numbers: dict[str, int] = {}
"""Channel -> the number of the last place to which this rank came. They count on when groups are created anew, because
the store may be the same."""


class WaitingPlace(NamedTuple):
    """channel: the kind of place and the group.  number: from 1.  what: for messages."""

    channel: str
    number: int
    what: str


SILENT_STORE = "the store of rank 0 does not answer"


class Store:
    """The keys and values that all ranks share, which the process of rank 0 or torchrun keeps.

    until: the time, by `time.monotonic`, until which it has to answer. Its methods raise RuntimeError if it does not.
    """

    def __init__(self, until: float, kept: Any = None) -> None:
        self.until = until
        self._kept = kept or dist.distributed_c10d._get_default_store()

    def set(self, key: str, value: str) -> None:
        self._ask(self._kept.set, key, value)

    def get(self, key: str) -> bytes:
        return self._ask(self._kept.get, key)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether it has all of the keys."""
        return self._ask(self._kept.check, list(keys))

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        return within(self.until - time.monotonic(), SILENT_STORE, question, *args)


def timeout() -> float:
    """Seconds that a rank waits for the others."""
    kept: Any = dist.distributed_c10d._get_default_store()
    return float(kept.timeout.total_seconds())


def store(seconds: float) -> Store:
    """The store, which has to answer in so many seconds from now."""
    return Store(time.monotonic() + seconds)


def within(seconds: float, problem: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a function of torch that waits for other processes, and may do so for ever. Raises RuntimeError,
    with the text `problem`, when it has not returned after so many seconds; its thread waits on."""
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            results.put((function(*args, **options), None))
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            results.put((None, error))

    threading.Thread(target=call, name="meta wait", daemon=True).start()
    try:
        result, error = results.get(timeout=max(seconds, 0.1))
    except queue.Empty:
        raise RuntimeError(problem) from None
    if error is not None:
        raise error
    return result


def channel(kind: str, group: str, ranks: tuple[int, ...]) -> str:
    """The name of the places of one kind in a group. Groups of one name have different first ranks."""
    name = f"{kind}/{group}/{ranks[0]}"
    _numbers.setdefault(name, 0)
    return name


def enter(name: str, what: str) -> WaitingPlace:
    """The next place of a channel."""
    _numbers[name] += 1
    return WaitingPlace(name, _numbers[name], what)


def entered(name: str) -> int:
    """The number of places of a channel to which this rank came."""
    return _numbers[name]


def rank_elsewhere(place: WaitingPlace, ranks: tuple[int, ...], until: float) -> tuple[int, str] | None:
    """A rank that will not come to a place because it waits for this rank somewhere else, and what it waits for.

    Raises RuntimeError when the store does not answer until a time."""
    keys, own = Store(until), dist.get_rank()
    record = {"at": place, "numbers": _numbers}
    keys.set(f"meta/waiting/{own}", json.dumps(record))
    for rank in ranks:
        key = f"meta/waiting/{rank}"
        if rank == own or not keys.check([key]):
            continue
        other = json.loads(keys.get(key))
        name, number, what = other["at"]
        if _numbers.get(name, number) < number and other["numbers"].get(place.channel, 0) < place.number:
            # The process that keeps the store may end after this: first the other one reads it.
            time.sleep(1.5 * POLL.total_seconds())
            return rank, what
    return None
