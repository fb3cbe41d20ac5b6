"""Meshes of ranks with named axes, and the groups of ranks that collectives name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from meta.distributed import process
from meta.errors import ArgumentError, CommunicationError, did_you_mean
from meta.schema.annotations import CheckedArguments


class Group(NamedTuple):
    """A group of ranks, the last two arguments of a collective.

    name: "world", or the name of an axis of a mesh.  ranks: their number."""

    name: str
    ranks: int


GroupLike: TypeAlias = "Group | DeviceMesh | str | None"
"""A group; a mesh of one axis; the name of a group that exists; None for all processes."""


class DeviceMesh(CheckedArguments):
    """All processes in a grid with named axes: `DeviceMesh({"dp": 2, "tp": 4})`, in which the ranks of an axis differ
    only in their position along it. Over torch's `DeviceMesh`.

    sizes: axis -> number of ranks; their product is the number of processes. One size may be -1: what is left.
    device: "cpu" or "cuda", None for CUDA where torch has it.
    `mesh["dp"]` is the group of this process along an axis.
    Raises ArgumentError for sizes that do not multiply to the number of processes."""

    def __init__(self, sizes: Mapping[str, int], device: str | None = None) -> None:
        self.sizes = _fitting(sizes, process.world_size())
        self._torch_mesh = _torch_mesh(self.sizes, device) if process.world_size() > 1 else None

    def __getitem__(self, axis: str) -> Group:
        if axis not in self.sizes:
            raise ArgumentError(
                "DeviceMesh", f"there is no axis {axis!r}", f"one of {', '.join(self.sizes)}",
                did_you_mean(axis, list(self.sizes)),
            )  # fmt: skip
        return Group(axis, self.sizes[axis])

    def rank(self, axis: str) -> int:
        """The position of this process along an axis."""
        name, ranks = self[axis]
        return 0 if ranks == 1 or self._torch_mesh is None else int(self._torch_mesh.get_local_rank(name))

    def torch_mesh(self) -> Any:
        """torch's mesh, for `torch.distributed.checkpoint` and the like; None in a single process."""
        return self._torch_mesh

    def __repr__(self) -> str:
        return f"DeviceMesh({', '.join(f'{axis}={size}' for axis, size in self.sizes.items())})"


def _fitting(sizes: Mapping[str, int], processes: int) -> dict[str, int]:
    """The sizes of the axes, with what is left for -1."""
    if not isinstance(sizes, Mapping) or not sizes:
        raise ArgumentError("DeviceMesh", f"the sizes are {sizes!r}", 'a dict such as {"dp": 2, "tp": 4}')
    for axis, size in sizes.items():
        if not isinstance(axis, str) or not axis.isidentifier() or axis == "world":
            raise ArgumentError("DeviceMesh", f"an axis is called {axis!r}", 'names other than "world"')
        if isinstance(size, bool) or not isinstance(size, int) or size < -1 or size == 0:
            raise ArgumentError("DeviceMesh", f"axis '{axis}' has size {size!r}", "1 or more, or -1 for what is left")
    open_axes = [axis for axis, size in sizes.items() if size == -1]
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if len(open_axes) > 1 or processes % fixed or (not open_axes and fixed != processes):
        product = " x ".join(f"{axis}={size}" for axis, size in sizes.items())
        problem = f"{product} for {processes} process{'es' * (processes > 1)}"
        raise ArgumentError("DeviceMesh", problem, f"sizes whose product is {processes}")
    return {axis: processes // fixed if size == -1 else size for axis, size in sizes.items()}


def _torch_mesh(sizes: Mapping[str, int], device: str | None) -> Any:
    import torch
    from torch.distributed import get_process_group_ranks
    from torch.distributed.device_mesh import init_device_mesh

    from meta.backend.torch import waiting
    from meta.backend.torch.groups import add_group

    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    seconds = waiting.timeout() + waiting.POLL.total_seconds()
    names = tuple(sizes)
    try:
        mesh = waiting.within(
            seconds, waiting.SILENT_STORE, init_device_mesh, kind, tuple(sizes.values()), mesh_dim_names=names
        )
    except RuntimeError as error:
        problem = f"the groups cannot be created: {str(error).splitlines()[0][:200]}"
        remedy = "look at the output of the others"
        raise CommunicationError("DeviceMesh", problem, "all ranks running the same program", remedy) from error
    for axis in sizes:
        members = mesh.get_group(axis)
        add_group(axis, tuple(get_process_group_ranks(members)), members)
    return mesh


def as_group(where: str, group: Any) -> Group:
    """The group that a user names. Raises ArgumentError for something else, CommunicationError for an unknown name."""
    if group is None or group == "world":
        return Group("world", process.world_size())
    if isinstance(group, Group):
        return group
    if isinstance(group, DeviceMesh):
        if len(group.sizes) > 1:
            problem = f"the mesh has axes {', '.join(group.sizes)}"
            raise ArgumentError(where, problem, "one of them", f'write mesh["{next(iter(group.sizes))}"]')
        return group[next(iter(group.sizes))]
    if not isinstance(group, str):
        raise ArgumentError(where, f"the group is {type(group).__name__} {group!r:.60}", 'mesh["dp"], or None for all')
    if process.world_size() == 1:
        raise CommunicationError(where, f"this process is in no group '{group}'", "a group of a DeviceMesh")
    from meta.backend.torch.groups import group_size

    return Group(group, group_size(where, group))
