"""Groups of ranks, by name: processes that call collectives of torch.distributed together.

An operator refers to a group by a name and a number of ranks. `meta.distributed` creates groups; operators find
them here when they run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from meta.backend.torch import waiting
from meta.backend.torch.waiting import WaitingPlace
from meta.errors import CommunicationError

_collectives: Any = dist  # whose types torch leaves open
ANSWER_SECONDS = 3.0
"""How long a rank waits, after a collective failed, for the other ranks to report the same."""


class ProcessGroup:
    """Ranks that communicate. Collectives work on contiguous tensors.

    name: how operators refer to it.  ranks: their numbers in the world, in the order of the group.
    rank: the position of this process among them.  process_group: torch's."""

    def __init__(self, name: str, ranks: tuple[int, ...], process_group: Any) -> None:
        self.name = name
        self.ranks = ranks
        self.process_group = process_group
        self.rank = ranks.index(dist.get_rank())
        self._calls = waiting.channel("call", name, ranks)
        self._agreements = waiting.channel("agreement", name, ranks)
        self._agreed: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def calls(self) -> int:
        """Collectives so far."""
        return waiting.entered(self._calls)

    def enter(self, operator: str) -> WaitingPlace:
        """The place of the next collective."""
        return waiting.enter(self._calls, f"{operator}, call {self.calls + 1} of group '{self.name}'")

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
        return _collectives.all_reduce(x, operation, group=self.process_group, async_op=not x.is_cuda)

    def reduce(self, x: torch.Tensor, destination: int, reduction: str) -> Any:
        """Reduce in place on one rank; the others' tensors are undefined afterwards. See `divide`."""
        target, operation = self.ranks[destination], self._operation(x, reduction)
        return _collectives.reduce(x, target, operation, group=self.process_group, async_op=not x.is_cuda)

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
        """Overwrite the tensors of all ranks with the tensor of one."""
        return _collectives.broadcast(x, self.ranks[source], group=self.process_group, async_op=not x.is_cuda)

    def all_to_all(self, parts: torch.Tensor, out: torch.Tensor) -> Any:
        """Write part j of this rank to part i of rank j, where this rank has position i."""
        return _collectives.all_to_all_single(
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
        seconds = waiting.timeout() + waiting.POLL.total_seconds()
        waiting.within(seconds, "timed out", _collectives.barrier, group=self.process_group)

    def divide(self, x: torch.Tensor, reduction: str) -> None:
        """Finish a mean after a reduction: NCCL computes means, gloo sums."""
        if reduction == "mean" and not x.is_cuda:
            x.div_(len(self))

    def _operation(self, x: torch.Tensor, reduction: str) -> Any:
        return dist.ReduceOp.AVG if reduction == "mean" and x.is_cuda else _OPERATIONS[reduction]

    # --- failures ----------------------------------------------------------------------------------------------------

    def wait(self, work: Any, operator: str, place: WaitingPlace) -> None:
        """Wait for a collective on the CPU. Raises RuntimeError for a failure, here or on another rank, and
        CommunicationError for a rank that waits for this one somewhere else."""
        if operator == "send_receive":  # gloo closes the connections of messages that time out
            work.wait()
            return
        timeout = waiting.timeout()
        # gloo's reduce_scatter has no timeout; the others report theirs first.
        deadline = time.monotonic() + timeout + waiting.POLL.total_seconds()
        while True:
            try:
                work.wait(waiting.POLL)
                return
            except RuntimeError:
                if work.is_completed():
                    raise
            if waiting.Store(deadline).check([f"{_failures(place)}/any"]):
                raise RuntimeError("it failed on another rank")
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out after {timeout:g} s")
            self._look_around(operator, place, deadline)

    def _look_around(self, where: str, place: WaitingPlace, until: float) -> None:
        elsewhere = waiting.rank_elsewhere(place, self.ranks, until)
        if elsewhere is not None:
            (rank, what), own = elsewhere, self.ranks[self.rank]
            raise CommunicationError(
                where,
                f"rank {own} waits for rank {rank} in {place.what}, and rank {rank} for rank {own} in {what}",
                "one program on all ranks",
                "call the same in one order; meta.distributed.batch_part refuses or pads unequal parts of a batch",
            )

    @contextmanager
    def reporting(self, name: str, place: WaitingPlace) -> Generator[None, None, None]:
        """Raise CommunicationError for a failed collective: it names the operator and the ranks that do not answer."""
        try:
            yield
        except CommunicationError:
            raise
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__
            silent = "" if reason == waiting.SILENT_STORE else self._silent(place)
            raise CommunicationError(
                name,
                f"call {place.number} of group '{self.name}' failed on rank {self.ranks[self.rank]}: {silent}{reason}",
                f"all of ranks {', '.join(map(str, self.ranks))} running the same program",
                "restart the ranks from their last checkpoint; meta.distributed.init(timeout=...) bounds the wait",
            ) from error

    def _silent(self, place: WaitingPlace) -> str:
        """The ranks of the group that do not report a failure of this call too, for a message."""
        try:
            store, key = waiting.store(ANSWER_SECONDS), _failures(place)
            for name in self.ranks[self.rank], "any":
                store.set(f"{key}/{name}", "failed")
            missing = set(self.ranks)
            while missing and time.monotonic() < store.until - 0.1:
                missing = {r for r in missing if not store.check([f"{key}/{r}"])}
                time.sleep(0.05)
        except RuntimeError:
            return f"{waiting.SILENT_STORE}; "
        return f"{_listed(missing)} did not answer; " if missing else ""

    # --- agreements --------------------------------------------------------------------------------------------------

    def agree_on(self, where: str, what: str, own: str, remedy: str) -> None:
        """Raise CommunicationError unless all ranks describe `what` in the same words. They are compared when they are
        new: ranks that run the same program have compared the same before."""
        if (what, own) in self._agreed:
            return
        self.compare(where, what, own, remedy)
        if len(self._agreed) == _MOST_AGREED:
            self._agreed.clear()
        self._agreed.add((what, own))

    def compare(self, where: str, what: str, own: str, remedy: str) -> None:
        """Raise CommunicationError unless all ranks describe `what` in the same words now."""
        texts = self._exchange(where, f"{what} {own}", own)
        for rank, text in zip(self.ranks, texts, strict=True):
            if text != texts[0]:
                raise CommunicationError(
                    where, f"{what} is {texts[0]} on rank {self.ranks[0]}, and {text} on rank {rank}",
                    "the same on all ranks", remedy,
                )  # fmt: skip

    def agree_on_program(self, name: str, what: str, digest: str) -> None:
        """Raise CommunicationError unless all ranks have one digest of what they run."""
        digests = self._exchange(name, what, digest)
        others = [rank for rank, other in zip(self.ranks, digests, strict=True) if other != digests[0]]
        if others:
            raise CommunicationError(
                name,
                f"{what} differs between rank {self.ranks[0]} and {_listed(others)}",
                "one program on all ranks",
                "make sizes, options and the order of calls equal; take what differs by rank from meta.group_rank",
            )

    def _exchange(self, where: str, what: str, own: str) -> list[str]:
        """The texts of all ranks of the group, in their order.

        By the store and not by a collective, which a rank that runs something else would take for its own."""
        place = waiting.enter(self._agreements, f"the comparison of {what}")
        try:
            return self._texts(where, what, place, own)
        except CommunicationError:
            raise
        except RuntimeError as error:
            problem = f"{what} cannot be compared: {waiting.SILENT_STORE}"
            raise CommunicationError(
                where, problem, "all ranks running the same program", "look at the output of the others"
            ) from error

    def _texts(self, where: str, what: str, place: WaitingPlace, own: str) -> list[str]:
        seconds, start = waiting.timeout(), time.monotonic()
        store = waiting.store(seconds + waiting.POLL.total_seconds())
        text_keys, reader_keys = (
            [f"meta/{place.channel}/{place.number}/{part}/{rank}" for rank in self.ranks] for part in ("said", "read")
        )
        store.set(text_keys[self.rank], own)
        pause, look = 0.0002, start + waiting.POLL.total_seconds()
        while not store.check(text_keys):
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            if time.monotonic() > start + seconds:
                absent = [rank for rank, key in zip(self.ranks, text_keys, strict=True) if not store.check([key])]
                problem = f"{what} is compared here, and by {_listed(absent)} not before the timeout"
                raise CommunicationError(where, problem, "one program on all ranks", "look at the output of the others")
            if time.monotonic() > look:
                self._look_around(where, place, store.until)
                look = time.monotonic() + waiting.POLL.total_seconds()
        text_keys = [store.get(key).decode() for key in text_keys]
        if len(set(text_keys)) > 1:
            # The process that keeps the store may end after this: first the others read it.
            store = waiting.store(ANSWER_SECONDS)
            store.set(reader_keys[self.rank], "read")
            while not store.check(reader_keys) and time.monotonic() < store.until - 0.1:
                time.sleep(0.02)
        return text_keys


def _failures(place: WaitingPlace) -> str:
    """Where ranks report that a collective failed."""
    return f"meta/failed/{place.channel}/{place.number}"


_MOST_AGREED = 4096
"""Descriptions that a group remembers; beyond that they are compared anew, on all ranks at the same call."""
_OPERATIONS: Mapping[str, Any] = {
    "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
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


def agree(name: str, what: str, digest: str) -> None:
    """Raise CommunicationError unless all ranks of the world call this with one `digest` of `what`, in this order."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        _group(name, "world").agree_on_program(name, what, digest)


def _listed(ranks: Collection[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
