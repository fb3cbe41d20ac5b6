"""The planned program and the machine code of its kernels, for the CPU that it is compiled for.

A kernel NAME of the plan is the function `__tvm_ffi_NAME(handle, arguments, count, result)` of an object file. It takes
DLPack tensors and numbers in the order of the call's arguments. It needs from the program around it some functions of
TVM's C interface, for errors, workspaces and parallel loops, and functions of libm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm.cpu import CpuTarget
from meta.backend.tvm.library import compile_functions, compiling, object_code
from meta.backend.tvm.parallel import threads
from meta.deploy.frames import called_functions, lift_loops, with_frames
from meta.errors import KernelError, NotSupportedError
from meta.records import record
from meta.vm.build.generate import plan_source
from meta.vm.lower.calls import loops_of
from meta.vm.plan.pipeline import Planned
from meta.vm.program import Program

PREFIX: Final = "__tvm_ffi_"
"""The prefix of the names under which kernels are exported."""
_KERNELS_PER_FILE: Final = 8
"""However many threads compile, so that files are the same everywhere."""


@record(eq=False)
class KernelObjects:
    """cpu: that the code is for.  planned: "main" and the functions that it calls, as lists of kernel calls.
    files: relocatable object files, position independent.  symbols: the exported name of each kernel, by its name in
    the plan.  calls: the functions that each function calls."""

    cpu: CpuTarget
    planned: Planned
    files: tuple[bytes, ...]
    symbols: Mapping[str, str]
    calls: Mapping[str, Sequence[str]]


def kernel_objects(program: Program, *, fuse: bool = True, prefix: str = "") -> KernelObjects:
    """The plan of a program (of `executor.program(...)`) and the code of its kernels. The same program gives the same
    files on every machine.

    prefix: of the names of kernels in the object files, so that several programs can be linked into one.

    Raises NotSupportedError, with the operator, for a program that calls kernels of other libraries; KernelError, with
    the operators, for a kernel that cannot be compiled for the CPU."""
    source = program.source
    packed = sorted({choice.implementation.name for choice in source.choices.packed().values()})
    if packed or source.device.kind != "cpu":
        problem = f"the program calls {', '.join(packed[:5])}" if packed else f"the program is for {source.device}"
        raise NotSupportedError("deploy", problem, "only kernels of TVM, for the CPU", "compile it with `target`")
    loops = {loop.function_name: loop for loop in loops_of(source.module)}
    planned = plan_source(source, fuse=fuse, lift=lambda function: lift_loops(function, loops))
    calls = {each.name: called_functions(each, loops) for each in (planned.main, *planned.others)}
    planned = with_frames(planned, calls)
    functions: dict[str, Any] = {
        str(name.name_hint): f for name, f in planned.module.functions.items() if isinstance(f, tvm.PrimFunc)
    }
    items, size = list(functions.items()), _KERNELS_PER_FILE
    requests = [{prefix + name: f for name, f in items[i : i + size]} for i in range(0, len(items), size)]
    cpu = source.cpu or cpus.host()
    try:
        with compiling("deploy"):
            files = _compile(requests, source.target, checks=planned.checks)
    except KernelError:
        for name, function in functions.items():
            with compiling(f"{' + '.join(planned.kernels.get(name, ())) or name} for {cpu.triple}"):
                _compile([{name: function}], source.target, checks=planned.checks)
        raise
    return KernelObjects(cpu, planned, files, {name: PREFIX + prefix + name for name in functions}, calls)


def _compile(requests: Sequence[Mapping[str, Any]], target: Any, *, checks: bool) -> tuple[bytes, ...]:
    """The object file of each request: functions by name."""
    if len(requests) == 1:
        return (object_code(compile_functions(dict(requests[0]), target, checks=checks)),)
    with threads.compiling_all(requests, target, threads.jobs(), checks=checks) as compiled:
        files = dict(compiled)
    return tuple(files[number] for number in range(len(requests)))
