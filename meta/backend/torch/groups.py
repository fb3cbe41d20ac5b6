"""Groups of ranks, by name: processes that call collectives of torch.distributed together.

A name and a number of ranks are what an operator knows of a group. `meta.distributed` creates groups; operators find
them here when they run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from meta.errors import CommunicationError

ANSWER_SECONDS = 3.0
"""How long a rank waits, after a collective failed, for the other ranks to report the same."""


class Group:
    """Ranks that communicate. Collectives work on contiguous tensors, in place or with a new result.

    name: how operators refer to it.  ranks: their numbers in the world, in the order of the group.
    rank: the position of this process among them.  process_group: torch's."""

    def __init__(self, name: str, ranks: tuple[int, ...], process_group: Any) -> None:
        self.name = name
        self.ranks = ranks
        self.process_group = process_group
        self.rank = ranks.index(dist.get_rank())
        self.calls = 0

    def __len__(self) -> int:
        return len(self.ranks)

    def torch_mesh(self, device: str) -> Any:
        """torch's mesh of these ranks, for distributed tensors on a kind of device."""
        from torch.distributed.device_mesh import DeviceMesh

        members: Any = self.process_group or dist.group.WORLD
        return DeviceMesh.from_group(members, device)

    # --- collectives -------------------------------------------------------------------------------------------------

    def all_reduce(self, x: torch.Tensor, reduction: str) -> None:
        """Reduce in place."""
        dist.all_reduce(x, _operation(reduction), group=self.process_group)
        self._divide(x, reduction)

    def reduce(self, x: torch.Tensor, destination: int, reduction: str) -> None:
        """Reduce in place on one rank; the others' tensors are undefined afterwards."""
        dist.reduce(x, self.ranks[destination], _operation(reduction), group=self.process_group)
        self._divide(x, reduction)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks' tensors, stacked along a new first axis."""
        out = x.new_empty((len(self), *x.shape))
        dist.all_gather_single(out.reshape(-1), x.reshape(-1), group=self.process_group)
        return out

    def reduce_scatter(self, parts: torch.Tensor, reduction: str) -> torch.Tensor:
        """The reduction of `parts[i]`, where this rank has position i."""
        out = torch.empty_like(parts[0])
        operation = _operation(reduction)
        dist.reduce_scatter_single(out.reshape(-1), parts.reshape(-1), operation, group=self.process_group)
        self._divide(out, reduction)
        return out

    def broadcast(self, x: torch.Tensor, source: int) -> None:
        """Overwrite the tensors by that of one rank."""
        dist.broadcast(x, self.ranks[source], group=self.process_group)

    def all_to_all(self, parts: torch.Tensor) -> torch.Tensor:
        """`parts[i]` of rank j becomes part j on rank i."""
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts, group=self.process_group)
        return out

    def send_receive(self, x: torch.Tensor, receivers: Mapping[int, int]) -> torch.Tensor | None:
        """The tensor of the rank that sends to this one, None if there is none. receivers: sender -> receiver."""
        senders = {receiver: sender for sender, receiver in receivers.items()}
        source, target = senders.get(self.rank), receivers.get(self.rank)
        if source == self.rank:
            return x
        received = None if source is None else torch.empty_like(x)
        transfers: list[Any] = []
        if target is not None:
            transfers.append(dist.P2POp(dist.isend, x, self.ranks[target], self.process_group))
        if received is not None and source is not None:
            transfers.append(dist.P2POp(dist.irecv, received, self.ranks[source], self.process_group))
        for work in dist.batch_isend_irecv(transfers) if transfers else ():
            work.wait()
        return received

    def barrier(self) -> None:
        dist.barrier(group=self.process_group)

    def _divide(self, x: torch.Tensor, reduction: str) -> None:
        if reduction == "mean":
            x.div_(len(self))

    # --- failures ----------------------------------------------------------------------------------------------------

    @contextmanager
    def reporting(self, name: str) -> Generator[None, None, None]:
        """Raise CommunicationError for a failed collective: it names the operator and the ranks that do not answer."""
        self.calls += 1
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__
            call = f"call {self.calls} of group '{self.name}' failed on rank {self.ranks[self.rank]}"
            raise CommunicationError(
                name,
                f"{call}: {self._silent()}{reason}",
                f"all of ranks {', '.join(map(str, self.ranks))} running the same program",
                "restart the ranks from their last checkpoint; meta.distributed.init(timeout=...) bounds the wait",
            ) from error

    def _silent(self) -> str:
        """The ranks of the group that do not report a failure too, for a message."""
        try:
            store = _store()
            key = f"meta/failed/{self.name}/{self.calls}"
            store.set(f"{key}/{self.ranks[self.rank]}", "failed")
            deadline = time.monotonic() + ANSWER_SECONDS
            missing = set(self.ranks)
            while missing and time.monotonic() < deadline:
                missing = {r for r in missing if not store.check([f"{key}/{r}"])}
                time.sleep(0.05)
        except RuntimeError:
            return "the store of rank 0 does not answer; "
        return f"{_listed(missing)} did not answer; " if missing else ""


def _operation(reduction: str) -> Any:
    return {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[
        reduction
    ]


_groups: dict[str, Group] = {}


def add_group(name: str, ranks: tuple[int, ...], process_group: Any) -> None:
    """Make a group known by its name. Raises CommunicationError when the name belongs to other ranks."""
    group = _groups.get(name)
    if group is not None and group.ranks != ranks:
        raise CommunicationError(
            "distributed", f"group '{name}' exists with ranks {group.ranks}, not {ranks}", "names of one group each"
        )
    if group is None:
        _groups[name] = Group(name, ranks, process_group)


def remove_groups() -> None:
    """Forget all groups."""
    _groups.clear()


def group_size(where: str, name: str) -> int:
    """The number of ranks of a group. Raises CommunicationError for an unknown name."""
    return len(_group(where, name))


def find_group(op: str, name: str, ranks: int) -> Group:
    """The group of an operator's call. Raises CommunicationError if there is none of that name and size."""
    group = _group(op, name)
    if len(group) != ranks:
        raise CommunicationError(
            op, f"group '{name}' has {len(group)} ranks, the call was made for {ranks}", "equal numbers"
        )
    return group


def _group(where: str, name: str) -> Group:
    group = _groups.get(name)
    if group is None:
        listed = ", ".join(f"'{each}'" for each in _groups)
        raise CommunicationError(
            where,
            f"this process is in no group '{name}'",
            f"one of {listed}" if listed else "an initialised process group",
            "start the program with torchrun, and call meta.distributed.init() first",
        )
    return group


_agreements = count()
"""Numbers of the agreements that this process took part in, the same on all ranks."""


def agree(name: str, what: str, digest: str) -> None:
    """Raise CommunicationError unless all ranks of the world call this with one `digest` of `what`, in this order.

    By the store and not by a collective, which a rank that runs something else would take for its own."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    store, ranks, number = _store(), range(dist.get_world_size()), next(_agreements)
    keys = [f"meta/agreement/{number}/{rank}" for rank in ranks]
    store.set(keys[dist.get_rank()], digest)
    try:
        store.wait(keys)
    except RuntimeError as error:
        absent = [rank for rank in ranks if not store.check([keys[rank]])]
        raise _absent(name, what, absent) from error
    digests = [store.get(key).decode() for key in keys]
    others = [rank for rank in ranks if digests[rank] != digests[0]]
    if others:
        raise CommunicationError(
            name,
            f"{what} of {_listed(others)} differs from that of rank 0",
            "one program on all ranks",
            "make sizes, options and the order of calls equal; take what differs by rank from meta.group_rank",
        )


def _absent(name: str, what: str, ranks: list[int]) -> CommunicationError:
    problem = f"{what} is compiled here, and by {_listed(ranks)} not before the timeout"
    return CommunicationError(name, problem, "one program on all ranks", "look at the output of the others")


def _listed(ranks: Collection[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
