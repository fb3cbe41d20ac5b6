"""Checkpoints of training steps of several processes, by torch.distributed.checkpoint in files of safetensors."""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meta.distributed import process
from meta.distributed.collectives import barrier
from meta.distributed.exchanges import exchanges
from meta.distributed.one_file import ONE_FILE, load_file, save_file
from meta.distributed.sharding import ShardedState
from meta.distributed.state import StateEntry, entries_of
from meta.errors import FileError, MetaError
from meta.modes import no_grad
from meta.optim.train_step import TrainStep
from meta.schema.annotations import checked


@checked
def save(path: str | os.PathLike[str], step: TrainStep) -> None:
    """Write everything that a later run needs to go on. All ranks call it together.

    path: becomes a folder of safetensors files, to which each rank writes its part. Several machines need a file system
        that they share. With the ending ".safetensors" it becomes one file, which rank 0 writes as `meta.save` does in
        one process; every array is gathered on all ranks first, one after the other. What is there is replaced when
        the new one is complete.
    The state has the same names and values with `data_parallel` and all stages of `zero`, on any number of ranks.
    Raises FileError when it cannot be written."""
    target = Path(path)
    if target.suffix == ONE_FILE:
        save_file(target, list(entries_of("distributed.save", step)))
        return
    dist_checkpoint = _checkpoint_module()
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
    for entry in entries_of(where, step):
        tensor = entry.tensor()
        state[entry.name] = tensor.clone() if id(entry.array) in seen else tensor
        seen.add(id(entry.array))
    return state


@contextmanager
def _reporting(where: str, path: Path, expected: str) -> Generator[None, None, None]:
    """Raise FileError for what torch.distributed.checkpoint raises."""
    try:
        with warnings.catch_warnings():
            # torch warns a single process that it is one.
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
    """Put a complete folder in the place of an old one. If this process ends in between, `load` finds the old one."""
    old = _old(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    building.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _old(target: Path) -> Path:
    return target.with_name(target.name + ".old")


@checked
def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint to load."""
    source = Path(path)
    return source.exists() or (source.suffix != ONE_FILE and _old(source).is_dir())


@checked
def load(path: str | os.PathLike[str], step: TrainStep) -> None:
    """Read what `save` wrote into a step, on any number of ranks and with any stage of `zero`. All ranks call it
    together. A file with the ending ".safetensors" may also be one that `meta.save` wrote for a step of one process.
    Nothing in the files is executed.

    Raises FileError for a checkpoint that is missing or damaged, and when names or types differ; the step is unchanged
    then."""
    source = Path(path)
    if source.suffix == ONE_FILE:
        load_file(source, list(entries_of("distributed.load", step)))
        _renew_shards(step)
        return
    if not source.exists() and _old(source).is_dir():
        source = _old(source)
    if not source.is_dir():
        raise FileError("distributed.load", f"{source} is not a folder", "a folder that distributed.save wrote")
    dist_checkpoint = _checkpoint_module()
    reader = dist_checkpoint.HuggingFaceStorageReader(str(source))
    entries = list(entries_of("distributed.load", step))
    with _reporting("distributed.load", source, "files that distributed.save wrote"):
        _check_stored(source, entries, reader.read_metadata().state_dict_metadata)
        state = {entry.name: entry.empty() for entry in entries}
        dist_checkpoint.load(state, storage_reader=reader, no_dist=process.world_size() == 1)
    with no_grad():
        for entry in entries:
            entry.assign(state[entry.name])
    _renew_shards(step)


def _renew_shards(step: TrainStep) -> None:
    """Copy this rank's parts of whole parameters to its shards."""
    with no_grad():
        for exchange in exchanges(step, ShardedState):
            for shard in exchange.shards:
                shard.array.update(shard.own_part(shard.parameter.detach()))


def _checkpoint_module() -> Any:
    import torch.distributed.checkpoint as dist_checkpoint

    return dist_checkpoint


def _stored_elements(chunks: Any) -> int:
    """The number of elements of a vector that its parts in all files cover. A file that is missing leaves a gap."""
    end = covered = 0
    for first, size in sorted((math.prod(c.offsets), math.prod(c.sizes)) for c in chunks):
        covered += max(0, first + size - max(first, end))
        end = max(end, first + size)
    return covered


def _check_stored(source: Path, entries: list[StateEntry], stored: Any) -> None:
    """Raise FileError unless a checkpoint has the names, sizes and dtypes of a step's state."""
    expected = {entry.name: entry for entry in entries}
    problems = [f"{name} is missing" for name in expected.keys() - stored.keys()]
    problems += [f"{name} is unknown to the step" for name in stored.keys() - expected.keys()]
    for name in sorted(expected.keys() & stored.keys()):
        size, dtype = math.prod(stored[name].size), str(stored[name].properties.dtype).removeprefix("torch.")
        entry = expected[name]
        if size != entry.size or dtype != entry.array.dtype:
            problems.append(f"{name} is {dtype} of {size} elements, in the step {entry.array.dtype} of {entry.size}")
        elif (missing := size - _stored_elements(stored[name].chunks)) > 0:
            problems.append(f"{missing} of the {size} elements of {name} are missing")
    if problems:
        listed = "; ".join(sorted(problems)[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise FileError(
            "distributed.load", f"{source}: {listed}", "the state of a step with the same model and optimizer"
        )
