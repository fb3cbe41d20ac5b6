"""From a lowered program to a planned one: kernels, their order, and the memory of their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import UNPROVED
from meta.ir.analysis import contents
from meta.vm.lower.choose import ASYNCHRONOUS, Source
from meta.vm.lower.translate import Lowered
from meta.vm.plan.budget import MemoryTrade, keep_to_budget
from meta.vm.plan.bundle import bundle_kernels
from meta.vm.plan.communication import overlap_collectives
from meta.vm.plan.functions import KernelTable, lift_workspaces
from meta.vm.plan.fusion import fuse_and_schedule
from meta.vm.plan.graph import order_kernels
from meta.vm.plan.kernels import Destinations, KernelList, PlannedBytes, leaves
from meta.vm.plan.memory import assign_memory, planned_bytes, update_in_place, write_over_operands
from meta.vm.plan.relax import ListEmitter, read_functions
from meta.vm.plan.verify import expected_values, verify

Lift = Callable[[KernelList], None]


@dataclass(frozen=True, slots=True)
class Planned:
    """kernels: the operators in each PrimFunc and packed function, by name.  main: the calls of "main".
    others: the calls of the functions that it calls.
    module: ready for code generation, but for `finish`.  memory: what the plan allocates.
    trade: what a budget of memory costs, None without one.
    checks: whether kernels check the shapes of their arguments, as some were not proved to have results of the
        declared shapes, see `lowering.pipeline`.
    destinations: the memory that callers provide, None where the program allocates it."""

    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    main: KernelList
    memory: PlannedBytes
    trade: MemoryTrade | None = None
    checks: bool = False
    destinations: Destinations | None = None
    others: tuple[KernelList, ...] = ()


def plan(
    source: Source, lowered: Lowered, target: Any, *, fuse: bool, arena: bool = False, lift: Lift | None = None
) -> Planned:
    """Choose groups of operators, the order of kernels and the memory of tensors.

    arena: the caller provides the memory of a straight "main".
    lift: makes what other steps than kernels allocate tensors of a list; storages are offsets in one block then."""
    with target:
        module, kernels = fuse_and_schedule(lowered, fuse, target)
        progress.stage("plan memory")
        functions = KernelTable(
            {str(n.name_hint): f for n, f in module.functions.items() if isinstance(f, tvm.PrimFunc)}, kernels, target
        )
        lists = read_functions(module, source.mutates)
        main, *others = lists
        expected = {each.name: expected_values(each) for each in lists}
        held = main.parameters[len(main.parameters) - len(source.constants) :]
        if held or main.updates:
            update_in_place(main, functions, [o.tensor.memory for _, value in held for o in leaves(value)])
        for each in lists:
            lift_workspaces(each, functions)
            if lift is not None:
                lift(each)
        if main.is_straight:
            order_kernels(main)
            if source.budget is None and contents(source.module).has(*ASYNCHRONOUS):
                overlap_collectives(main, functions)
        bundles = fuse and source.device.kind == "cuda"

        def complete(function: KernelList, bundle: bool) -> KernelList:
            function = function.copy() if source.budget is not None else function
            write_over_operands(function, functions)
            if bundle and bundles:
                bundle_kernels(function, functions)
            assign_memory(function, arena=arena or lift is not None)
            return function

        trade: MemoryTrade | None = None
        if source.budget is None:
            main = complete(main, True)
        else:
            progress.stage("keep to the memory budget")
            main, trade = keep_to_budget(main, functions, source.budget, complete)
        for each in others:
            assign_memory(each, arena=lift is not None)
        planned = [main, *others]
        for each in planned:
            verify(each, expected[each.name])
        prim_funcs = (f for f in lowered.module.functions.values() if isinstance(f, tvm.PrimFunc))
        checks = any(UNPROVED in (f.attrs or ()) for f in prim_funcs)
        return _emitted(module, planned, functions, trade, checks, takes_memory=arena and main.is_straight)


def _emitted(
    module: Any, planned: Sequence[KernelList], functions: KernelTable, trade: MemoryTrade | None, checks: bool,
    *, takes_memory: bool,
) -> Planned:  # fmt: skip
    """The module for code generation, with the kernels that its functions call. planned: first "main"."""
    used = dict.fromkeys(call.function for each in planned for call in each.calls)
    callees = {n: _callee(n) for n in used if n in functions.functions}
    callees |= {str(n.name_hint): n for n, f in module.functions.items() if isinstance(f, tvm.RelaxFunction)}
    functions_out: dict[Any, Any] = {callees[n]: functions.functions[n] for n in used if n in functions.functions}
    emitters = [ListEmitter(f, callees, takes_memory=takes_memory and f is planned[0]) for f in planned]
    functions_out |= {callees[emitter.function.name]: emitter.emit() for emitter in emitters}
    out = tvm.relax_transform.Normalize()(tvm.IRModule(functions_out, attrs=module.attrs))
    kernels = {name: ops for name, ops in functions.kernels.items() if name in used or name.startswith("meta.")}
    destinations = emitters[0].described() if takes_memory else None
    memory = planned_bytes(planned, functions)
    return Planned(out, kernels, planned[0], memory, trade, checks, destinations, tuple(planned[1:]))


def _callee(name: str) -> Any:
    """The variable of a kernel. Its type says nothing of its parameters: schedules narrow those that are sizes."""
    variable = tvm.GlobalVar(name)
    tvm.update_type(variable, tvm.FuncType.opaque_func(ret=tvm.TupleType([]), purity=False))
    return variable
