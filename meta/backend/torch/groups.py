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


class ProcessGroup:
    """Ranks that communicate. Collectives work on contiguous tensors.

    name: how operators refer to it.  ranks: their numbers in the world, in the order of the group.
    rank: the position of this process among them.  process_group: torch's.  calls: collectives so far."""

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
    # On the CPU they return the work to wait for; on a GPU they are queued on the current stream of torch.

    def all_reduce(self, x: torch.Tensor, reduction: str) -> Any:
        """Reduce in place; see `divide`."""
        operation = self._operation(x, reduction)
        return dist.all_reduce(x, operation, group=self.process_group, async_op=not x.is_cuda)

    def reduce(self, x: torch.Tensor, destination: int, reduction: str) -> Any:
        """Reduce in place on one rank; the others' tensors are undefined afterwards. See `divide`."""
        target, operation = self.ranks[destination], self._operation(x, reduction)
        return dist.reduce(x, target, operation, group=self.process_group, async_op=not x.is_cuda)

    def all_gather(self, x: torch.Tensor, out: torch.Tensor) -> Any:
        """Write the ranks' tensors to `out` one after the other."""
        return _all_gather(out.reshape(-1), x.reshape(-1), group=self.process_group, async_op=not x.is_cuda)

    def reduce_scatter(self, parts: torch.Tensor, out: torch.Tensor, reduction: str) -> Any:
        """Write the reduction of the part of this rank's position to `out`; see `divide`."""
        operation = self._operation(out, reduction)
        return _reduce_scatter(
            out.reshape(-1), parts.reshape(-1), operation, group=self.process_group, async_op=not out.is_cuda
        )

    def broadcast(self, x: torch.Tensor, source: int) -> Any:
        """Overwrite the tensors by that of one rank."""
        return dist.broadcast(x, self.ranks[source], group=self.process_group, async_op=not x.is_cuda)

    def all_to_all(self, parts: torch.Tensor, out: torch.Tensor) -> Any:
        """Write part j of this rank to part i of rank j, where this rank has position i."""
        return dist.all_to_all_single(
            out.reshape(-1), parts.reshape(-1), group=self.process_group, async_op=not out.is_cuda
        )

    def send_receive(self, x: torch.Tensor, out: torch.Tensor, receivers: Mapping[int, int]) -> list[Any]:
        """Write the tensor of the rank that sends to this one to `out`. receivers: sender -> receiver."""
        source, target = self.sender(receivers), receivers.get(self.rank)
        transfers: list[Any] = []
        if target is not None:
            transfers.append(dist.P2POp(dist.isend, x, self.ranks[target], self.process_group))
        if source is not None:
            transfers.append(dist.P2POp(dist.irecv, out, self.ranks[source], self.process_group))
        return dist.batch_isend_irecv(transfers) if transfers else []

    def sender(self, receivers: Mapping[int, int]) -> int | None:
        """The position of the rank that sends to this one, None if there is none."""
        return {receiver: sender for sender, receiver in receivers.items()}.get(self.rank)

    def barrier(self) -> None:
        dist.barrier(group=self.process_group)

    def divide(self, x: torch.Tensor, reduction: str) -> None:
        """What is left of a mean after a reduction: NCCL computes means, gloo sums."""
        if reduction == "mean" and not x.is_cuda:
            x.div_(len(self))

    def _operation(self, x: torch.Tensor, reduction: str) -> Any:
        return dist.ReduceOp.AVG if reduction == "mean" and x.is_cuda else _OPERATIONS[reduction]

    # --- failures ----------------------------------------------------------------------------------------------------

    @contextmanager
    def reporting(self, name: str, call: int) -> Generator[None, None, None]:
        """Raise CommunicationError for a failed collective: it names the operator and the ranks that do not answer.

        call: its number in this group, from 1."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__
            raise CommunicationError(
                name,
                f"call {call} of group '{self.name}' failed on rank {self.ranks[self.rank]}: "
                f"{self._silent(call)}{reason}",
                f"all of ranks {', '.join(map(str, self.ranks))} running the same program",
                "restart the ranks from their last checkpoint; meta.distributed.init(timeout=...) bounds the wait",
            ) from error

    def _silent(self, call: int) -> str:
        """The ranks of the group that do not report a failure of this call too, for a message."""
        try:
            store = _store()
            key = f"meta/failed/{self.name}/{call}"
            store.set(f"{key}/{self.ranks[self.rank]}", "failed")
            deadline = time.monotonic() + ANSWER_SECONDS
            missing = set(self.ranks)
            while missing and time.monotonic() < deadline:
                missing = {r for r in missing if not store.check([f"{key}/{r}"])}
                time.sleep(0.05)
        except RuntimeError:
            return "the store of rank 0 does not answer; "
        return f"{_listed(missing)} did not answer; " if missing else ""


_OPERATIONS: Mapping[str, Any] = {
    "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
}  # fmt: skip
# Before torch 2.13 two functions have other names.
_all_gather, _reduce_scatter = (
    getattr(dist, new, None) or getattr(dist, old)
    for new, old in (
        ("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor"),
    )
)  # fmt: skip

_groups: dict[str, ProcessGroup] = {}


def add_group(name: str, ranks: tuple[int, ...], process_group: Any) -> None:
    """Make a group known by its name. Raises CommunicationError when the name belongs to other ranks."""
    group = _groups.get(name)
    if group is not None and group.ranks != ranks:
        raise CommunicationError(
            "distributed", f"group '{name}' exists with ranks {group.ranks}, not {ranks}", "names of one group each"
        )
    if group is None:
        _groups[name] = ProcessGroup(name, ranks, process_group)


def remove_groups() -> None:
    """Forget all groups."""
    _groups.clear()


def group_size(where: str, name: str) -> int:
    """The number of ranks of a group. Raises CommunicationError for an unknown name."""
    return len(_group(where, name))


def find_group(op: str, name: str, ranks: int) -> ProcessGroup:
    """The group of an operator's call. Raises CommunicationError if there is none of that name and size."""
    group = _group(op, name)
    if len(group) != ranks:
        raise CommunicationError(
            op, f"group '{name}' has {len(group)} ranks, the call was made for {ranks}", "equal numbers"
        )
    return group


def _group(where: str, name: str) -> ProcessGroup:
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
