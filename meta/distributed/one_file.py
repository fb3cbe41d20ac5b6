"""Training steps of several processes in one safetensors file, as one process writes it."""

from __future__ import annotations

from pathlib import Path

import meta
from meta.checkpoint import api
from meta.distributed import process
from meta.distributed.collectives import broadcast
from meta.distributed.state import StateEntry
from meta.eager.ndarray import NDArray
from meta.errors import FileError
from meta.files import safetensors
from meta.modes import no_grad
from meta.random.generator import default_generator

ONE_FILE = ".safetensors"
"""The ending of the names of such files."""


def save_file(path: Path, entries: list[StateEntry]) -> None:
    """Gather the arrays, and write them on rank 0. Raises FileError on all ranks when it cannot be written."""
    arrays: dict[str, NDArray] = {}
    for entry in entries:
        whole = entry.whole()
        if process.rank() == 0:
            x = whole.to("cpu")
            is_shared = any(x._data is other._data for other in arrays.values())  # else save writes one of their names
            arrays[entry.name] = x.copy() if is_shared else x
    error: FileError | None = None
    if process.rank() == 0:
        arrays["random.state"] = meta.array(list(default_generator.state), "int64")
        try:
            api.save(path, arrays)
        except FileError as raised:
            error = raised
    written = bool(broadcast(meta.array(error is None)).item())
    if error is not None:
        raise error
    if not written:
        raise FileError("distributed.save", f"rank 0 could not write {path}", "a file that can be written")


def load_file(path: Path, entries: list[StateEntry]) -> None:
    """Copy this rank's parts of the arrays of a file.

    Raises FileError for a file that cannot be read, and when names or types differ; nothing has changed then."""
    with safetensors.reading(path) as file:
        expected = {entry.name: entry for entry in entries}
        saved = {name for name in file.dtypes if not name.startswith("random.")}  # each rank has a generator of its own
        problems = [f"{name} is missing" for name in sorted(expected.keys() - saved)]
        problems += [f"{name} is unknown to the step" for name in sorted(saved - expected.keys())]
        parts: list[NDArray] = []
        for entry in entries if not problems else ():
            whole = meta.array(file.array(entry.name))
            if (whole.size, whole.dtype) != (entry.size, entry.array.dtype):
                kinds = f"{whole.dtype} of {whole.size} elements, in the step {entry.array.dtype} of {entry.size}"
                problems.append(f"{entry.name} is {kinds}")
                continue
            parts.append(entry.own_part(whole).to(entry.array.device))
    if problems:
        listed = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise FileError(
            "distributed.load", f"{path}: {listed}", "the state of a step with the same model and optimizer"
        )
    with no_grad():
        for entry, part in zip(entries, parts, strict=True):
            entry.array.update(part)
