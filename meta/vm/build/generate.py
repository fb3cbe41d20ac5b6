"""From a program that is ready to be lowered to a runtime module."""

from __future__ import annotations

from typing import Any, Final

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.failures import compiling
from meta.backend.tvm.lowering import options, pipeline
from meta.vm.build.parameter_sizes import solve_parameter_sizes
from meta.vm.lower.choose import Source
from meta.vm.lower.translate import Lowered, lower
from meta.vm.plan.fusion import sequence
from meta.vm.plan.pipeline import Planned, plan


def plan_source(
    source: Source, *, fuse: bool, lowered: Lowered | None = None, arena: bool = False
) -> tuple[Lowered, Planned]:
    """The Relax module before and after the passes of `plan`. lowered: the former, where it exists already.
    arena: the caller provides the memory of a program of straight-line code."""
    progress.stage("lower operators")
    lowered = lowered or lower(source.module, source.choices, source.calls)
    target = targets.target(source.device.kind)
    with compiling("vm"):
        return lowered, plan(source, lowered, target, fuse=fuse, arena=arena)


_COMPILED: Final = 400
"""Bindings and parameters of a function up to which LLVM compiles the calls of its kernels too. For large functions
that takes longer than all kernels: 40 s for a step of 16 transformer blocks, 7 s with bytecode, which runs them; and
5 s for the arguments of a concatenation of 500 arrays."""


def build_module(source: Source, planned: Planned, *, mode: str = "") -> Any:
    """The runtime module of the program. mode: "compiled" or "bytecode", by default by the size of the program.

    Kernels do not check their arguments, which the program has checked or allocated, if their results are proved to
    have the declared shapes: LLVM takes 30 s for the checks of 240 tensors of a GPU."""
    mode = mode or execution_mode(planned)
    progress.stage("generate code")
    target = targets.target(source.device.kind)
    with compiling("vm"), target, options():
        module = finish(planned, static=source.static)
        passes = pipeline(checks=planned.checks)
        return tvm.relax_build(module, target=target, relax_pipeline=None, tir_pipeline=passes, exec_mode=mode).mod


def finish(planned: Planned, *, static: bool) -> Any:
    """The module in the form that code is generated from.

    static: no symbolic sizes. Then nothing needs to be freed before the end of a call, since the plan already lets
    tensors share storage; with symbolic sizes every tensor is freed after its last use."""

    module = sequence("LowerAllocTensor", *([] if static else ["KillAfterLastUse"]))(planned.module)
    module = module if static else solve_parameter_sizes(module)
    return sequence("LowerRuntimeBuiltin", "ComputePrimValue", "VMShapeLower", "AttachGlobalSymbol")(module)


def execution_mode(planned: Planned) -> str:
    """ "compiled" or "bytecode", by the size of the program."""
    return "compiled" if _largest(planned.module) <= _COMPILED else "bytecode"


def _largest(module: Any) -> int:
    """The bindings and parameters of the largest Relax function of a module."""
    functions = [f for f in module.functions.values() if isinstance(f, tvm.RelaxFunction)]
    sizes = (len(f.params) + sum(len(block.bindings) for block in f.body.blocks) for f in functions)
    return max(sizes, default=0)
