"""The kernels that a process keeps in memory, counted by operator."""

from __future__ import annotations

from meta.backend.tvm import kernel


def kernels_of(name: str) -> int:
    """How many kernels of the operator `name` are in memory. Other operators' kernels come and go: an eviction drops
    or reloads them at any call."""
    return sum(spec.name == name for spec, *_ in {**kernel._kernels, **kernel._older})
