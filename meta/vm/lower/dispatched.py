"""A program in the form that is lowered: dialects chosen, no closures, constants of "main" as parameters."""

from __future__ import annotations

from collections.abc import Callable

from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.ir.expr import MUTATES, Constant, FunctionExpr
from meta.ir.module import Module
from meta.ir.type import TensorType, Type, leaf_types
from meta.records import record
from meta.vm.lower.calls import Calls, running_step, special_calls
from meta.vm.lower.calls import register as register_calls
from meta.vm.lower.choose import WAIT, Choices, choose_all, start_name
from meta.vm.lower.lift import constants_to_params, lift_closures, outline_branches
from meta.vm.lower.loop_calls import loops_of
from meta.vm.lower.loop_calls import register as register_loops
from meta.vm.lower.open_calls import open_calls, register
from meta.vm.lower.python_errors import kept
from meta.vm.lower.tail_recursion import tail_loops


@record(eq=False)
class Source:
    """A program ready to be lowered: no closures, constants of "main" as its last parameters.

    mutates: flat index of a result -> parameter.  calls: see `meta.vm.lower.calls`.
    budget: the most bytes that it may need, None for no limit."""

    module: Module
    constants: tuple[Constant, ...]
    choices: Choices
    mutates: dict[int, int]
    device: Device
    calls: Calls
    budget: int | None = None

    @property
    def main(self) -> FunctionExpr:
        return self.module.main

    @property
    def static(self) -> bool:
        types = (t for p in self.main.params for t in leaf_types(p.type) if isinstance(t, TensorType))
        return all(t.is_static for t in types) and not self.calls_python

    @property
    def calls_python(self) -> bool:
        """Whether the program calls functions in Python, other than library kernels."""
        return bool(self.calls) or any(any(open_calls(f)) for f in self.module.functions.values())

    @property
    def reads_values(self) -> bool:
        """Whether some call reads values on the host: positions to check, or whether to communicate."""
        return any(choice.checked or choice.info.op.name == "all_reduce_when" for choice in self.choices.listed())


def prepare(module: Module, device: Device, budget: int | None = None) -> Source:
    """Choose dialects and bring the module into the form that is lowered. Raises DispatchError, NotSupportedError.

    budget: see `Source`."""
    main, constants = constants_to_params(module.main)
    lifted = outline_branches(tail_loops(lift_closures(module.with_function("main", main))))
    choices = choose_all(lifted, device)
    return Source(lifted, constants, choices, _flat_mutates(module.main), device, special_calls(lifted), budget)


def _flat_mutates(main: FunctionExpr) -> dict[int, int]:
    """MUTATES with the results counted after nested tuples are taken apart."""
    starts: list[int] = []
    total = 0
    for atom in main.body.results:
        starts.append(total)
        total += len(leaf_types(atom.type))
    return {starts[i]: param for i, param in main.attrs.get(MUTATES, {}).items()}


def output_types(source: Source) -> tuple[Type, ...]:
    """The types of what a call returns: the results of "main", flat, less those that replace parameters."""
    flat = leaf_types(source.main.body.type)
    return tuple(t for i, t in enumerate(flat) if i not in source.mutates)


def register_kernels(source: Source) -> None:
    """Make the library kernels of the program known to TVM under the names that the program calls."""
    register(source.module)
    if source.calls:
        register_calls()
        register_loops(loops_of(source.module), running_step)
    for name, choice in source.choices.packed().items():
        if tvm.get_global_func(name, allow_missing=True) is None:
            implementation, info = choice.implementation, choice.info
            kernel = (
                implementation.checked_kernel(info)
                if choice.checked
                else implementation.dialect.kernel(implementation, info)
            )
            tvm.register_global_func(name, kept(kernel), override=True)
            if info.op.family == "collective" and implementation.dialect.name == "torch":
                _register_halves(name, kernel, info.device)


def _register_halves(name: str, kernel: Callable[..., None], device: Device) -> None:
    """Make what begins and what ends a collective known to TVM."""
    from meta.backend.torch.transfers import starter, wait

    tvm.register_global_func(start_name(name), kept(starter(kernel, device)), override=True)
    tvm.register_global_func(WAIT, kept(wait), override=True)
