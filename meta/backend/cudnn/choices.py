"""The plans chosen for problems, on disk, with their kernels: a later process loads the chosen plan, without cuDNN's
heuristics and without measuring. A choice holds as long as the GPU, cuDNN and its frontend stay the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

from meta import cache
from meta.backend.cudnn import frontend, loader
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import devices
from meta.device import Device

_SUFFIX = ".compiled_plan"


def key(problem: Hashable, device: Device, limit: int, avoid: Sequence[str]) -> str:
    """The key of a problem's choice among `limit` plans without the numerical notes `avoid`."""
    gpu_facts = (4, 5, 7)  # TVM's numbers of the compute capability, the name and the number of multiprocessors.
    gpu = [str(tvm.device_attribute(devices.CUDA, device.index, fact)) for fact in gpu_facts]
    parts = (gpu, loader.version(), frontend.module().__version__, repr(problem), limit, list(avoid))
    return "cudnn-" + hashlib.sha256(repr(parts).encode()).hexdigest()


def read(name: str) -> bytes | None:
    """The plan stored under a key, or None. A damaged entry is removed."""
    digest_bytes = 32
    disk = cache.default_cache()
    payload = disk.read(name, _SUFFIX) if disk else None
    if disk is None or payload is None:
        return None
    digest, data = payload[:digest_bytes], payload[digest_bytes:]
    if hashlib.sha256(data).digest() == digest:
        return data
    disk.remove(name, _SUFFIX)
    return None


def write(name: str, data: bytes) -> None:
    """Store a plan, if the cache is in use."""
    disk = cache.default_cache()
    if disk:
        disk.put(name, hashlib.sha256(data).digest() + data, _SUFFIX)


def remove(name: str) -> None:
    """Remove a plan that does not load or does not run."""
    disk = cache.default_cache()
    if disk:
        disk.remove(name, _SUFFIX)
