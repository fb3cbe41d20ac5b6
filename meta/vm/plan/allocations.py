"""What a planned program allocates, known before it runs, and what it takes from its caller instead.

A CUDA graph records addresses, so the owner of the graph provides the memory of the program: "main" of a straight
program of static sizes can take the memory of all tensors that it computes as further parameters.
"""

from __future__ import annotations

from typing import Any

from meta.records import record


@record
class PlannedBytes:
    """The allocations of a program's memory plan, in bytes.

    intermediates: storage shared by what is computed on the way, in called functions too.
    outputs: storage of the results.  workspace: the most that one kernel allocates while it runs.
    dynamic: tensors whose size is known only when running; they are not counted."""

    intermediates: int
    outputs: int
    workspace: int
    dynamic: int

    @property
    def total(self) -> int:
        return self.intermediates + self.outputs + self.workspace


@record
class Destination:
    """A parameter that the program writes: a tensor in a storage, at an offset in bytes."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


@record
class Destinations:
    """The further parameters of "main". storages: bytes of each storage that they share.
    kernels: the number of kernel calls in the program."""

    storages: tuple[int, ...]
    tensors: tuple[Destination, ...]
    kernels: int

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Destinations:
        tensors = (Destination(t["storage"], t["offset"], tuple(t["shape"]), t["dtype"]) for t in facts["tensors"])
        return Destinations(tuple(facts["storages"]), tuple(tensors), facts["kernels"])
