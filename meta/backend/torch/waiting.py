"""Ranks that wait for each other in different places find out, instead of waiting until the timeout.

A place is a collective or an agreement of a group of ranks. All ranks of the group come to its places in one order. A
rank that has waited for a while writes to the store where it waits and how far it came in each of its groups, and reads
what the others wrote. If two ranks have come to one place each to which the other has not, their programs differ.
"""

from __future__ import annotations

import json
import time
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


def store() -> Any:
    """The keys and values that all ranks share, which the process of rank 0 or torchrun keeps."""
    return dist.distributed_c10d._get_default_store()


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


def rank_elsewhere(place: WaitingPlace, ranks: tuple[int, ...]) -> tuple[int, str] | None:
    """A rank that will not come to a place because it waits for this rank somewhere else, and what it waits for.

    Raises RuntimeError when the store does not answer."""
    keys, own = store(), dist.get_rank()
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
