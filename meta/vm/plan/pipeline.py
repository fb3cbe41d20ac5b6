"""From a lowered program to a planned one: kernels, their order, and the memory of their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import UNPROVED
from meta.vm.lower.translate import Lowered
from meta.vm.plan.allocations import Destinations, PlannedBytes
from meta.vm.plan.budget import MemoryTrade, keep_to_budget
from meta.vm.plan.bundle import BundleCache, bundle_kernels
from meta.vm.plan.communication import overlap_collectives
from meta.vm.plan.emit import ListEmitter
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.grouping import fuse_and_schedule
from meta.vm.plan.kernels import KernelList, leaves
from meta.vm.plan.memory import assign_memory, planned_bytes, write_over_operands
from meta.vm.plan.order import order_kernels
from meta.vm.plan.read import read_functions
from meta.vm.plan.updates import update_in_place
from meta.vm.plan.verify import expected_values, verify
from meta.vm.plan.workspace import lift_workspaces


@dataclass(frozen=True, slots=True)
class Planned:
    """kernels: the operators in each PrimFunc and packed function, by name.  main: the calls of "main".
    module: ready for code generation, but for `finish`.  memory: what the plan allocates.
    trade: what a budget of memory costs, None without one.
    checks: whether kernels check the shapes of their arguments, see `lowering.pipeline`.
    destinations: the memory that callers provide, None where the program allocates it."""

    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    main: KernelList
    memory: PlannedBytes
    trade: MemoryTrade | None = None
    checks: bool = False
    destinations: Destinations | None = None


def plan(
    lowered: Lowered, mutates: Mapping[int, int], constants: int, target: Any, *, fuse: bool, arena: bool = False,
    budget: int | None = None,
) -> Planned:  # fmt: skip
    """Choose groups of operators, the order of kernels and the memory of tensors.

    mutates: result of "main" (a tuple of tensors) -> parameter that it replaces.  constants: how many of the last
    parameters hold constants of the program.  arena: the caller provides the memory of a straight "main".
    budget: the most bytes that the program may need with its parameters; see `keep_to_budget`."""
    with target:
        module, kernels = fuse_and_schedule(lowered, fuse, target)
        progress.stage("plan memory")
        functions = KernelTable(
            {str(n.name_hint): f for n, f in module.functions.items() if isinstance(f, tvm.PrimFunc)}, kernels, target
        )
        lists = read_functions(module, mutates)
        main = lists["main"]
        expected = {name: expected_values(each) for name, each in lists.items()}
        held = main.parameters[len(main.parameters) - constants :]
        update_in_place(main, functions, [o.tensor.memory for _, value in held for o in leaves(value)])
        for each in lists.values():
            lift_workspaces(each, functions)
        if main.is_straight:
            order_kernels(main)
            if budget is None:
                overlap_collectives(main, functions)
        bundles = fuse and str(target.kind.name) == "cuda"
        cache = BundleCache()
        parameter_bytes = sum(o.bytes for _, value in main.parameters for o in leaves(value))

        def complete(function: KernelList, bundle: bool) -> tuple[_Complete, int]:
            function = function.copy() if budget is not None else function
            write_over_operands(function, functions)
            if bundle and bundles:
                bundle_kernels(function, functions, cache)
            done = _Complete(function, assign_memory(function, arena=arena))
            return done, done.bytes(functions).total + parameter_bytes

        trade: MemoryTrade | None = None
        if budget is None:
            done, _ = complete(main, True)
        else:
            progress.stage("keep to the memory budget")
            done, trade = keep_to_budget(main, functions.kernels, budget, complete)
        planned = [done, *(_Complete(f, assign_memory(f, arena=False)) for n, f in lists.items() if n != "main")]
        for each in planned:
            verify(each.function, expected[each.function.name])
        return _emitted(module, planned, functions, trade, _has_unproved(lowered.module), arena and main.is_straight)


@dataclass(frozen=True, slots=True)
class _Complete:
    """A list whose tensors have memory. storages: their bytes."""

    function: KernelList
    storages: Sequence[int]

    def bytes(self, functions: KernelTable) -> PlannedBytes:
        return planned_bytes(self.function, self.storages, functions)


def _emitted(
    module: Any, planned: Sequence[_Complete], functions: KernelTable, trade: MemoryTrade | None, checks: bool,
    takes_memory: bool,
) -> Planned:  # fmt: skip
    """The module for code generation, with the kernels that its functions call."""
    used = dict.fromkeys(c.function for each in planned for c in each.function.calls)
    callees = {n: _callee(n) for n in used if n in functions.functions}
    callees |= {str(n.name_hint): n for n, f in module.functions.items() if isinstance(f, tvm.RelaxFunction)}
    functions_out: dict[Any, Any] = {callees[n]: functions.functions[n] for n in used if n in functions.functions}
    destinations: Destinations | None = None
    for each in planned:
        is_main = each.function.name == "main"
        emitter = ListEmitter(each.function, each.storages, callees, takes_memory=takes_memory and is_main)
        functions_out[callees[each.function.name]] = emitter.emit()
        destinations = emitter.described() if takes_memory and is_main else destinations
    out = tvm.relax_transform.Normalize()(tvm.IRModule(functions_out, attrs=module.attrs))
    kernels = {name: ops for name, ops in functions.kernels.items() if name in used or name.startswith("meta.")}
    memory = reduce(PlannedBytes.with_other, (each.bytes(functions) for each in planned))
    return Planned(out, kernels, planned[0].function, memory, trade, checks, destinations)


def _callee(name: str) -> Any:
    """The variable of a kernel. Its type says nothing of its parameters: schedules narrow those that are sizes."""
    variable = tvm.GlobalVar(name)
    tvm.update_type(variable, tvm.FuncType.opaque_func(ret=tvm.TupleType([]), purity=False))
    return variable


def _has_unproved(module: Any) -> bool:
    """Whether some kernel was not proved to have results of the declared shapes."""
    return any(isinstance(f, tvm.PrimFunc) and UNPROVED in (f.attrs or ()) for f in module.functions.values())
