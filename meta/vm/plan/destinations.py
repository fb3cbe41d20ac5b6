"""Programs that allocate nothing: "main" takes the memory of all tensors that it computes as further parameters.

A CUDA graph records addresses, so the owner of the graph provides the memory of the program. Only straight-line
programs of static sizes have this form.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from meta.records import record


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

    def as_dict(self) -> dict[str, Any]:
        return {"storages": self.storages, "tensors": [asdict(t) for t in self.tensors], "kernels": self.kernels}

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Destinations:
        tensors = (Destination(t["storage"], t["offset"], tuple(t["shape"]), t["dtype"]) for t in facts["tensors"])
        return Destinations(tuple(facts["storages"]), tuple(tensors), facts["kernels"])
