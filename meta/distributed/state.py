"""The arrays of a training step's state, as one process has them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import meta
from meta.distributed.exchanges import exchanges
from meta.distributed.parallel import TensorParallel
from meta.distributed.sharding import shards_of
from meta.distributed.shards import Shard, gather
from meta.distributed.tensor.parameters import ParameterPart
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.modes import no_grad
from meta.optim.train_step import TrainStep

_OF_SHARD = re.compile(r"(optimizer|step|model)\.(.+)\.shard(\.\w+)?")
"""Names of arrays that `zero` gave to a step."""


@dataclass(frozen=True, slots=True)
class StateEntry:
    """An array of a step's state as a checkpoint has it: a vector, under the name that it has in one process.

    shard: the parameter that the array is this rank's shard of, as `zero` divides it; None for arrays that it does not
        divide.
    part: the parameter that the array, gathered from shards, is this rank's part of, as `tensor_parallel` divides it.
        Such an array is gathered, and the checkpoint has it as one."""

    name: str
    array: NDArray
    shard: Shard | None
    part: ParameterPart | None

    @property
    def size(self) -> int:
        """The number of elements of the whole vector."""
        if self.part is not None:
            return math.prod(self.part.kind.shape)  # type: ignore[arg-type]
        return math.prod(self.array.shape if self.shard is None else self.shard.shape)

    def whole(self) -> NDArray:
        """The array as one process has it; all ranks call it together."""
        with no_grad():
            own = self.array.detach()
            whole = own if self.shard is None else gather([self.shard], [own])[0]
            return whole if self.part is None else self.part.whole(whole)

    def own_part(self, whole: NDArray) -> NDArray:
        """The part of an array that this rank keeps."""
        with no_grad():
            part = whole if self.part is None else self.part.own_part(whole.reshape(self.part.kind.shape))
            own = part if self.shard is None else self.shard.own_part(part)
            return own.reshape(self.array.shape)

    def tensor(self) -> Any:
        """torch's view of the array."""
        import torch

        if self.part is not None:
            return torch.from_dlpack(self.whole()).reshape(-1).cpu()
        return self._distributed(torch.from_dlpack(self.array.detach()).reshape(-1))

    def empty(self) -> Any:
        """A tensor of torch to read into."""
        import torch

        own = torch.from_dlpack(self.array.detach()).reshape(-1)
        if self.part is not None:
            return torch.empty(self.size, dtype=own.dtype)
        return self._distributed(torch.empty_like(own))

    def assign(self, tensor: Any) -> None:
        """Copy the values of a tensor of `empty`."""
        if self.part is not None:
            self.array.update(self.own_part(meta.from_dlpack(tensor)).to(self.array.device))
            return
        if self.shard is None or self.shard.group.ranks == 1:
            self.array.update(meta.from_dlpack(tensor)[: self.array.size].reshape(self.array.shape))
            return
        import torch

        local = tensor.to_local()
        padding = torch.zeros(self.array.size - local.numel(), dtype=local.dtype, device=local.device)
        self.array.update(meta.from_dlpack(torch.cat([local, padding])))

    def _distributed(self, local: Any) -> Any:
        """A whole vector as it is; a shard without its padding as part of a distributed tensor."""
        if self.shard is None:
            return local
        import torch
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor import Shard as Placement

        from meta.backend.torch.groups import find_group

        name, ranks = self.shard.group
        if ranks == 1:
            return local[: self.size]
        group = find_group("checkpoint", name, ranks)
        start = group.rank * self.array.size
        own = local[: max(0, min(self.size - start, self.array.size))]
        mesh = group.torch_mesh(local.device.type)
        return DTensor.from_local(
            own, mesh, [Placement(0)], run_check=False, shape=torch.Size([self.size]), stride=(1,)
        )


def entries_of(where: str, step: Any) -> Iterator[StateEntry]:
    """The arrays of a step's state."""
    if not isinstance(step, TrainStep):
        raise ArgumentError(where, f"the step is of class {type(step).__name__}", "a TrainStep")
    shards = shards_of(step)
    by_name = {shard.name: shard for shard in shards}
    by_id = {id(shard.array): shard for shard in shards}
    parts = [part for exchange in exchanges(step, TensorParallel) for part in exchange.parts]
    for name, x in step.state_arrays().items():
        match = _OF_SHARD.fullmatch(name)
        shard = by_name.get(match[2]) if match else None
        if match is None or shard is None:
            own_name, shard = name, by_id.get(id(x))
        elif match[3]:
            divided = x.shape == shard.array.shape and match[3] != ".step"
            own_name, shard = f"{match[1]}.{match[2]}{match[3]}", shard if divided else None
        else:
            continue  # a shard of a parameter that all ranks have
        part = next((part for part in parts if part.owns(own_name.partition(".")[2])), None)
        is_part = part is not None and (shard is not None or x.shape == part.shape)
        yield StateEntry(own_name, x, shard, part if is_part else None)
