"""The virtual machine: programs compiled for a device, see `compile`.

executor, program    compiling for the types of a call, and the compiled program
arguments, runner    what a call does in Python
report               dialects, memory, text and time of a program
lower                from our IR to Relax
relax                from Relax to an executable
cuda_graph           calls recorded as CUDA graphs
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.vm.executor import Executor as Executor
    from meta.vm.executor import compile as compile  # noqa: A004
    from meta.vm.report import MemoryReport as MemoryReport
    from meta.vm.report import Profile as Profile

_HOMES = {"Executor": "executor", "compile": "executor", "MemoryReport": "report", "Profile": "report"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meta.vm' has no attribute {name!r}")
    value = getattr(import_module(f"meta.vm.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
