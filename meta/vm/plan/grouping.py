"""Groups of operators that share a kernel, and the schedules of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.patterns import schedule
from meta.vm.lower.translate import Lowered
from meta.vm.plan.tuple_items import fuse_operators

MOST_FUSED: Final = 64
"""Operators in a kernel, at most. One more pass over memory for so many costs little, and the time of LLVM grows faster
than their number: 30 s for a chain of 256 hyperbolic tangents, which TVM would fuse, and 2 s for one of 64."""


def fuse_and_schedule(lowered: Lowered, fuse: bool, target: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with scheduled kernels, and the operators of each."""
    progress.stage("fuse operators")
    module, kernels = _fused(lowered, fuse)
    module = _scheduled(_sequence("ToNonDataflow")(module), target)
    return module, kernels


def _sequence(*names: str) -> Any:
    return tvm.Sequential([getattr(tvm.relax_transform, name)() for name in names])


def _without_dead_code(module: Any) -> Any:
    return tvm.relax_transform.DeadCodeElimination(["main"])(module)


def _fused(lowered: Lowered, fuse: bool) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with groups of operators as one PrimFunc each, and the operators of each."""
    kernels: dict[str, tuple[str, ...]] = {name: (op,) for name, op in lowered.ops.items()}
    if not fuse:
        return lowered.module, kernels
    module = _without_dead_code(lowered.module)  # a dead user of a tensor would keep it from being fused
    with tvm.PassContext(config={"relax.FuseOps.max_depth": MOST_FUSED}):
        module = fuse_operators(_sequence("ConvertToDataflow", "AnnotateTIROpPattern")(module))
    for target, function in module.functions.items():
        if isinstance(function, tvm.RelaxFunction) and function.attrs and "Primitive" in function.attrs:
            kernels[target.name_hint] = _members(function, kernels)
    return _without_dead_code(_sequence("FuseTIR")(module)), kernels


def _members(group: Any, kernels: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The operators that a group made by FuseOps calls, in order."""
    out: list[str] = []
    for block in group.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, tvm.RelaxCall) and len(value.args) and isinstance(value.args[0], tvm.GlobalVar):
                out.extend(kernels.get(value.args[0].name_hint, ()))
    return tuple(out)


def _scheduled(module: Any, target: Any) -> Any:
    functions = {}
    progress.stage("schedule kernels", total=len(module.functions))
    for name, function in module.functions.items():
        functions[name] = schedule(function, "", target) if isinstance(function, tvm.PrimFunc) else function
        progress.advance()
    return tvm.IRModule(functions, attrs=module.attrs)
