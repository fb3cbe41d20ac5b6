"""From lowered Relax to what the virtual machine is built from: fuse, schedule, allocate, update in place, plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import UNPROVED
from meta.backend.tvm.schedule.patterns import schedule
from meta.vm.lower.translate import Lowered
from meta.vm.relax.aliases import remove_aliases, share_tensors
from meta.vm.relax.budget import MemoryTrade, keep_to_budget
from meta.vm.relax.bundle import BundleCache, bundle_kernels
from meta.vm.relax.communication import overlap_collectives
from meta.vm.relax.inplace import update_in_place
from meta.vm.relax.order import order_kernels
from meta.vm.relax.parameter_sizes import solve_parameter_sizes
from meta.vm.relax.reuse import write_over_operands
from meta.vm.relax.storage import assign_memory
from meta.vm.relax.tuple_items import fuse_operators
from meta.vm.relax.workspace import lift_workspaces


@dataclass(frozen=True, slots=True)
class Planned:
    """kernels: the operators in each PrimFunc and packed function, by name.
    module: ready for code generation, but for `finish`.  trade: what a budget of memory costs, None without one.
    checks: whether kernels check the shapes of their arguments, see `lowering.pipeline`."""

    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    trade: MemoryTrade | None = None
    checks: bool = False


def plan(
    lowered: Lowered, mutates: Mapping[int, int], constants: int, target: Any, *, fuse: bool, arena: bool = False,
    budget: int | None = None,
) -> Planned:  # fmt: skip
    """Run the passes up to the static memory plan.

    mutates, constants: see `update_in_place`.  arena: see `assign_memory`.
    budget: the most bytes that the program may need with its parameters; see `keep_to_budget`."""
    with target:
        progress.stage("fuse operators")
        module, kernels = _fused(lowered, fuse)
        module = _scheduled(module, target)
        module = _sequence("ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite")(module)
        module = _without_dead_code(remove_aliases(module))
        module, kernels = update_in_place(module, kernels, mutates, constants, target)
        module, kernels = lift_workspaces(_without_dead_code(module), kernels)
        module = order_kernels(module, mutates.values())
        if budget is None:
            module, kernels = overlap_collectives(module, kernels, mutates.values())
        bundles = fuse and str(target.kind.name) == "cuda"
        cache = BundleCache()

        def complete(module: Any, bundle: bool) -> tuple[Any, dict[str, tuple[str, ...]]]:
            module, names = write_over_operands(module, kernels)
            if bundle and bundles:
                module, names = bundle_kernels(module, names, cache)
            return assign_memory(_without_dead_code(module), arena=arena), names

        trade: MemoryTrade | None = None
        if budget is None:
            module, kernels = complete(module, True)
        else:
            progress.stage("keep to the memory budget")
            module, kernels, trade = keep_to_budget(module, kernels, list(mutates.values()), budget, complete)
    present = {name.name_hint for name in module.get_global_vars()}
    used = {k: ops for k, ops in kernels.items() if k in present or k.startswith("meta.")}
    return Planned(module, used, trade, _has_unproved(lowered.module))


def finish(planned: Planned, target: Any, *, static: bool) -> Any:
    """The module in the form that code is generated from.

    static: no symbolic sizes. Then nothing needs to be freed before the end of a call, since the plan already lets
    tensors share storage; with symbolic sizes every tensor is freed after its last use."""
    with target:
        module = _sequence("LowerAllocTensor")(planned.module)
        module = share_tensors(module) if static else _sequence("KillAfterLastUse")(module)
        module = module if static else solve_parameter_sizes(module)
        return _sequence("LowerRuntimeBuiltin", "ComputePrimValue", "VMShapeLower", "AttachGlobalSymbol")(module)


def _has_unproved(module: Any) -> bool:
    """Whether some kernel was not proved to have results of the declared shapes."""
    return any(isinstance(f, tvm.PrimFunc) and UNPROVED in (f.attrs or ()) for f in module.functions.values())


def _sequence(*names: str) -> Any:
    return tvm.Sequential([getattr(tvm.relax_transform, name)() for name in names])


def _without_dead_code(module: Any) -> Any:
    return tvm.relax_transform.DeadCodeElimination(["main"])(module)


MOST_FUSED: Final = 64
"""Operators in a kernel, at most. One more pass over memory for so many costs little, and the time of LLVM grows faster
than their number: 30 s for a chain of 256 hyperbolic tangents, which TVM would fuse, and 2 s for one of 64."""


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
    progress.stage("plan memory")
    return tvm.IRModule(functions, attrs=module.attrs)
