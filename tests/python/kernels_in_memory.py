"""The kernels, runners and programs that a process keeps in memory."""

from __future__ import annotations

from meta.backend.tvm import kernel, shape_generic
from meta.cache import default_max_kernels
from meta.eager import call
from meta.vm.build import executables


def kernels_of(name: str) -> int:
    """How many kernels of the operator `name` are in memory. Other operators' kernels come and go: an eviction drops
    or reloads them at any call."""
    return sum(spec.name == name for spec, *_ in {**kernel._kernels, **kernel._older})


def forget_kernels() -> None:
    """Drop the kernels in memory; those on disk stay."""
    with kernel._building:
        kernel._kernels.clear()
        kernel._older.clear()
    shape_generic._built_before.clear()


def forget_programs() -> None:
    """Drop the executables in memory; those on disk stay."""
    with executables._lock:
        executables._loaded.clear()


def make_room(kernels: int, runners: int) -> None:
    """Evict kernels and drop cached runners now, unless the next ones fit without that."""
    with kernel._building:
        if len(kernel._kernels) + kernels > default_max_kernels() // 2:
            kernel._evict()
    call.make_room(runners)
