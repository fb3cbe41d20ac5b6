"""The plans chosen for problems, on disk: a later process builds only the chosen plan, without cuDNN's heuristics and
without measuring, or loads it with the kernels that cuDNN compiled for it. A choice holds as long as the GPU, cuDNN and
its frontend stay the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from typing import Any

from meta import cache
from meta.backend.cudnn import frontend, loader
from meta.backend.cudnn.frontend import PlanChoice
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import devices
from meta.device import Device

_SUFFIX = ".plan"
_COMPILED = ".compiled_plan"
_GPU_FACTS = (4, 5, 7)
"""TVM's numbers of the compute capability, the name and the number of multiprocessors."""
_MAX_NUMBER = 1 << 62
_DIGEST_BYTES = 32


def key(problem: Hashable, device: Device, limit: int, avoid: Sequence[str]) -> str:
    """The key of a problem's choice among `limit` plans without the numerical notes `avoid`."""
    gpu = [str(tvm.device_attribute(devices.CUDA, device.index, fact)) for fact in _GPU_FACTS]
    parts = (gpu, loader.version(), frontend.module().__version__, repr(problem), limit, list(avoid))
    return "cudnn-" + hashlib.sha256(repr(parts).encode()).hexdigest()


def read(name: str) -> PlanChoice | None:
    """The choice stored under a key, or None."""
    disk = cache.default_cache()
    payload = disk.read(name, _SUFFIX) if disk else None
    return None if payload is None else parse(payload)


def write(name: str, choice: PlanChoice) -> None:
    """Store a choice, if the cache is in use."""
    disk = cache.default_cache()
    if disk:
        engine, knobs = choice
        disk.put(name, json.dumps({"engine": engine, "knobs": knobs}).encode(), _SUFFIX)


def read_compiled(name: str) -> bytes | None:
    """The compiled plan stored under a key, or None. A damaged entry is removed."""
    disk = cache.default_cache()
    payload = disk.read(name, _COMPILED) if disk else None
    if disk is None or payload is None:
        return None
    digest, data = payload[:_DIGEST_BYTES], payload[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() == digest:
        return data
    disk.remove(name, _COMPILED)
    return None


def write_compiled(name: str, data: bytes) -> None:
    """Store a compiled plan, if the cache is in use."""
    disk = cache.default_cache()
    if disk:
        disk.put(name, hashlib.sha256(data).digest() + data, _COMPILED)


def remove_compiled(name: str) -> None:
    """Remove a compiled plan that does not load."""
    disk = cache.default_cache()
    if disk:
        disk.remove(name, _COMPILED)


def parse(payload: bytes) -> PlanChoice | None:
    """The choice that an entry holds; None for an entry of another form."""
    try:
        entry: Any = json.loads(payload)
        engine: Any = entry["engine"]
        knobs: dict[str, Any] = dict(entry["knobs"].items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return (engine, knobs) if all(_is_number(n) for n in (engine, *knobs.values())) else None


def _is_number(value: Any) -> bool:
    return type(value) is int and abs(value) < _MAX_NUMBER
