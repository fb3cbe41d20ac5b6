"""The virtual machine: programs compiled for a device, see `compile`.

compilation           `compile` and its options
executor, program     compiling for the types of a call, and the compiled program
arguments, runner     the arguments of a call, and its part in Python
gradient              calls that record gradients
dynamic_sizes         which sizes programs leave open
report                dialects, memory, text and time of a program
located               plans with the user's lines of kernels, and what pictures show of them
lower                 from our IR to Relax
plan                  the order of kernels, and the memory of tensors
build                 from a plan to an executable
saved                 programs in files
cuda_graph            calls recorded as CUDA graphs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.backend.tvm.choices import TuneReport as TuneReport
    from meta.vm.compilation import compile as compile  # noqa: A004
    from meta.vm.dynamic_sizes import SpecialisationWarning as SpecialisationWarning
    from meta.vm.executor import Executor as Executor
    from meta.vm.report import MemoryReport as MemoryReport
    from meta.vm.report import Profile as Profile
    from meta.vm.saved.files import LoadedExecutor as LoadedExecutor
    from meta.vm.saved.files import load as load
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.vm.compilation": ("compile",),
        "meta.vm.executor": ("Executor",),
        "meta.vm.report": ("MemoryReport", "Profile"),
        "meta.vm.saved.files": ("LoadedExecutor", "load"),
        "meta.backend.tvm.choices": ("TuneReport",),
        "meta.vm.dynamic_sizes": ("SpecialisationWarning",),
    })  # fmt: skip
