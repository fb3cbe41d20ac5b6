"""Mutated checkpoints of training steps (`meta.distributed.save`). The outcome may only be a step with the stored
state, or an error of meta and the state of before, within bounded time and memory."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta import distributed, nn, optim
from meta.errors import FileError
from scripts.fuzz_relay import mutate_bytes, mutate_json, mutate_tokens
from tests.attack.files import bounded


@dataclass(frozen=True, slots=True)
class _Saved:
    """A step, its state, and the files of its checkpoint."""

    step: Any
    state: dict[str, Any]
    files: dict[str, bytes]


@cache
def _saved() -> _Saved:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    step = optim.TrainStep(model, optim.Adam(model), meta.cross_entropy)
    step(meta.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), meta.array([0, 1]))
    with tempfile.TemporaryDirectory() as folder:
        distributed.save(f"{folder}/step", step)
        files = {path.name: path.read_bytes() for path in Path(folder, "step").iterdir()}
    return _Saved(step, _state(step), files)


def _state(step: Any) -> dict[str, Any]:
    return {name: x.detach().numpy(copy=True) for name, x in step.state_dict().items()}


def case(seed: int, index: int) -> str:
    """One folder with a mutated file."""
    rng = random.Random(f"checkpoints/{seed}/{index}")
    saved = _saved()
    files = dict(saved.files)
    name = rng.choice(list(files))
    if rng.random() < 0.1:
        files[rng.choice(("other.safetensors", "a" * 200, f"x{name}"))] = files.pop(name)
    else:
        files[name] = _mutated(files[name], rng)
    with tempfile.TemporaryDirectory() as folder:
        for each, data in files.items():
            Path(folder, each).write_bytes(data)
        return bounded(lambda: _load(saved, folder))


def _load(saved: _Saved, folder: str) -> str:
    try:
        distributed.load(folder, saved.step)
    except FileError as error:
        now = _state(saved.step)
        changed = [name for name, x in saved.state.items() if not np.array_equal(x, now[name], equal_nan=True)]
        if not changed:
            return "" if len(str(error)) < 10_000 else f"an error of {len(str(error))} characters"
        return f"{error}, and yet other values of {', '.join(changed)}"
    with meta.no_grad():
        for name, x in saved.step.state_dict().items():
            x.update(meta.array(saved.state[name]))
    return ""


def _mutated(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    end = 8 + int.from_bytes(data[:8], "little")
    text = data[8:end].decode()
    changed = mutate_json(text, rng) if rng.random() < 0.6 else mutate_tokens(text, rng)
    header = changed.encode("utf-8", "replace")
    return len(header).to_bytes(8, "little") + header + data[end:]
