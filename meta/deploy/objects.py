"""The planned program and the machine code of its kernels, for the CPU that it is compiled for.

A kernel NAME of the plan is the function `__tvm_ffi_NAME(handle, arguments, count, result)` of an object file. It takes
DLPack tensors and numbers in the order of the call's arguments, and needs from the program around it what `imports`
lists: functions of TVM's C interface for errors, workspaces and parallel loops, and of libm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm.cpu import CpuTarget
from meta.backend.tvm.library import compiling
from meta.backend.tvm.parallel import threads
from meta.errors import NotSupportedError
from meta.records import record
from meta.vm.build.generate import _shares, _stores, plan_source
from meta.vm.plan.pipeline import Planned
from meta.vm.program import Program

PREFIX: Final = "__tvm_ffi_"
"""The prefix of the names under which kernels are exported."""


@record(eq=False)
class KernelObjects:
    """cpu: that the code is for.  planned: "main" and the functions that it calls, as lists of kernel calls.
    files: relocatable object files, position independent.  symbols: the exported name of each kernel, by its name in
    the plan."""

    cpu: CpuTarget
    planned: Planned
    files: tuple[bytes, ...]
    symbols: Mapping[str, str]


def kernel_objects(program: Program, *, fuse: bool = True, prefix: str = "") -> KernelObjects:
    """The plan of a program (of `executor.program(...)`) and the code of its kernels.

    prefix: of the names of kernels in the object files, so that several programs can be linked into one.

    Raises NotSupportedError, with the operator, for a program that calls kernels of other libraries; KernelError for a
    kernel that cannot be compiled for the CPU."""
    source = program.source
    packed = sorted({choice.implementation.name for choice in source.choices.packed().values()})
    if packed or source.device.kind != "cpu":
        problem = f"the program calls {', '.join(packed[:5])}" if packed else f"the program is for {source.device}"
        raise NotSupportedError("deploy", problem, "only kernels of TVM, for the CPU", "compile it with `target`")
    planned = plan_source(source, fuse=fuse, arena=True)
    functions: dict[str, Any] = {
        str(name.name_hint): f for name, f in planned.module.functions.items() if isinstance(f, tvm.PrimFunc)
    }
    count = threads.jobs()
    shares = _shares({name: _stores(f) for name, f in functions.items()}, count)
    requests = [{prefix + name: functions[name] for name in share} for share in shares]
    files: list[bytes] = [b""] * len(requests)
    with compiling("deploy"), threads.compiling_all(requests, source.target, count, checks=planned.checks) as compiled:
        for number, code in compiled:
            files[number] = code
    cpu = source.cpu or cpus.host()
    return KernelObjects(cpu, planned, tuple(files), {name: PREFIX + prefix + name for name in functions})
