"""Checkpoints of training steps of several processes, by torch.distributed.checkpoint in files of safetensors."""

from __future__ import annotations

import math
import os
import re
import shutil
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meta
from meta.autograd.api import no_grad
from meta.distributed import process
from meta.distributed.collectives import barrier
from meta.distributed.exchanges import exchanges
from meta.distributed.sharding import Shard, ShardedState, gather, shards_of
from meta.distributed.tensor.parallel import TensorParallel
from meta.distributed.tensor.parameters import Part
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, FileError, MetaError
from meta.optim.train_step import TrainStep

_OF_SHARD = re.compile(r"(optimizer|step|model)\.(.+)\.shard(\.\w+)?")
"""Names of arrays that `zero` gave to a step."""


def save(folder: str | os.PathLike[str], step: TrainStep) -> None:
    """Write everything that a later run needs to go on. All ranks call it together, and each writes its part.

    folder: becomes a folder of safetensors files. One that is there is replaced when the new one is complete. Several
        machines need a file system that they share.
    The state has the same names and values with `data_parallel` and all stages of `zero`, on any number of ranks.
    Raises FileError when it cannot be written."""
    dist_checkpoint = _checkpoint_module()
    target = Path(folder)
    building = target.with_name(target.name + ".incomplete")
    state = _state("distributed.save", step)
    with _reporting("distributed.save", target, "a folder that can be written"):
        if process.rank() == 0:
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(parents=True)
        barrier()
        writer = dist_checkpoint.HuggingFaceStorageWriter(str(building), save_distributed=True)
        dist_checkpoint.save(state, storage_writer=writer, no_dist=process.world_size() == 1)
        barrier()
        if process.rank() == 0:
            _replace(building, target)
        barrier()


def _state(where: str, step: TrainStep) -> dict[str, Any]:
    """Name -> tensor. Counters that parameters share are copied: safetensors refuses tensors that share memory."""
    seen: set[int] = set()
    state: dict[str, Any] = {}
    for entry in _entries(where, step):
        tensor = entry.tensor()
        state[entry.name] = tensor.clone() if id(entry.array) in seen else tensor
        seen.add(id(entry.array))
    return state


@contextmanager
def _reporting(where: str, path: Path, expected: str) -> Generator[None, None, None]:
    """Raise FileError for what torch.distributed.checkpoint raises."""
    try:
        with warnings.catch_warnings():
            # torch tells a process that is alone that it is.
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            yield
    except MetaError:
        raise
    except OSError as error:
        raise FileError(where, f"{path}: {error.strerror or error}", expected) from error
    except (Exception, _checkpoint_module().CheckpointException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise FileError(where, f"{path}: {lines[-1][:300]}", expected) from error


def _replace(building: Path, target: Path) -> None:
    """Put a complete folder in the place of an old one."""
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    building.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: str | os.PathLike[str], step: TrainStep) -> None:
    """Read a folder of `save` into a step, on any number of ranks and with any stage of `zero`. All ranks call it
    together. Nothing in the files is executed.

    Raises FileError for a folder that is missing or damaged, and when names or types differ; the step is unchanged
    then."""
    dist_checkpoint = _checkpoint_module()
    source = Path(folder)
    if not source.is_dir():
        raise FileError("distributed.load", f"{source} is no folder", "a folder that distributed.save wrote")
    reader = dist_checkpoint.HuggingFaceStorageReader(str(source))
    entries = list(_entries("distributed.load", step))
    with _reporting("distributed.load", source, "files that distributed.save wrote"):
        _check_stored(source, entries, reader.read_metadata().state_dict_metadata)
        state = {entry.name: entry.empty() for entry in entries}
        dist_checkpoint.load(state, storage_reader=reader, no_dist=process.world_size() == 1)
    with no_grad():
        for entry in entries:
            entry.assign(state[entry.name])
        for exchange in exchanges(step, ShardedState):
            for shard in exchange.shards:
                shard.array.update(shard.own_part(shard.parameter.detach()))


def _checkpoint_module() -> Any:
    import torch.distributed.checkpoint as dist_checkpoint

    return dist_checkpoint


@dataclass(frozen=True, slots=True)
class _Entry:
    """An array of a step's state as a checkpoint has it: a vector, under the name that it has in one process.

    shard: of which parameter the array is this rank's shard, as `zero` divides it; None for arrays that it does not.
    part: of which parameter the array, gathered from shards, is this rank's part, as `tensor_parallel` divides it. Such
        an array is gathered, and the checkpoint has it as one."""

    name: str
    array: NDArray
    shard: Shard | None
    part: Part | None

    @property
    def size(self) -> int:
        """The number of elements of the whole vector."""
        if self.part is not None:
            return math.prod(self.part.kind.shape)  # type: ignore[arg-type]
        return math.prod(self.array.shape if self.shard is None else self.shard.shape)

    def tensor(self) -> Any:
        """torch's view of the array."""
        import torch

        if self.part is not None:
            with no_grad():
                part = self.array.detach() if self.shard is None else gather([self.shard], [self.array.detach()])[0]
                return torch.from_dlpack(self.part.whole(part)).reshape(-1).cpu()
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
            own = self.part.own_part(meta.from_dlpack(tensor).reshape(self.part.kind.shape))
            own = own if self.shard is None else self.shard.own_part(own)
            self.array.update(own.to(self.array.device))
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


def _entries(where: str, step: Any) -> Iterator[_Entry]:
    """The arrays of a step's state."""
    if not isinstance(step, TrainStep):
        raise ArgumentError(where, f"the step is of class {type(step).__name__}", "a TrainStep")
    shards = shards_of(step)
    by_name = {shard.name: shard for shard in shards}
    by_id = {id(shard.array): shard for shard in shards}
    parts = [part for exchange in exchanges(step, TensorParallel) for part in exchange.parts]
    for name, x in step.state_dict().items():
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
        yield _Entry(own_name, x, shard, part if is_part else None)


def _check_stored(source: Path, entries: list[_Entry], stored: Any) -> None:
    """Raise FileError unless a checkpoint has the names, sizes and dtypes of a step's state."""
    expected = {entry.name: entry for entry in entries}
    problems = [f"{name} is missing" for name in expected.keys() - stored.keys()]
    problems += [f"{name} is unknown to the step" for name in stored.keys() - expected.keys()]
    for name in sorted(expected.keys() & stored.keys()):
        size, dtype = math.prod(stored[name].size), str(stored[name].properties.dtype).removeprefix("torch.")
        entry = expected[name]
        if size != entry.size or dtype != entry.array.dtype:
            problems.append(f"{name} is {dtype} of {size} elements, in the step {entry.array.dtype} of {entry.size}")
    if problems:
        listed = "; ".join(sorted(problems)[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise FileError(
            "distributed.load", f"{source}: {listed}", "the state of a step with the same model and optimizer"
        )
