"""Programs ready to be lowered: the dialect of every operator call, no closures, constants of "main" as parameters."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any, Final, cast

from meta.backend.python_errors import kept
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.compute import TEImplementation
from meta.backend.tvm.cpu import CpuTarget
from meta.backend.tvm.target import KnobChoices
from meta.device import Device
from meta.errors import DeviceError, DispatchError
from meta.ir.analysis import contents, is_open
from meta.ir.builder import Module
from meta.ir.expr import MUTATES, Call, Constant, FunctionExpr, GlobalVar, Var, arg_types
from meta.ir.type import TensorType, Type, flat_types, leaf_types
from meta.ir.visitor import block_reads, substituted, walk
from meta.modes import modes, scoped
from meta.op import positions
from meta.op.dispatch import CallInfo, Candidate, Implementation, accepting, foremost_candidates, implementation
from meta.op.registry import Op, check_registered
from meta.passes.fold_views import StridedOp, fold_views
from meta.passes.lift_closures import lift_closures
from meta.passes.manager import Pipeline
from meta.passes.outline_branches import outline_branches
from meta.passes.tail_loops import tail_loops
from meta.records import record
from meta.tracing import loop_op
from meta.tracing.foreign_op import ForeignOp
from meta.tracing.loop_op import LoopOp
from meta.vm.lower.calls import Calls, loops_of, special_calls
from meta.vm.lower.calls import register as register_calls


@record
class Choice:
    """The implementation that runs calls of one operator on some types, its priority as `explain` words it, the
    candidates before it, which refused, the number of calls, and whether positions out of range are refused."""

    info: CallInfo
    implementation: Implementation
    priority: str
    refused: tuple[Candidate, ...]
    calls: int = 1
    checked: bool = False

    @property
    def compiled(self) -> bool:
        """Whether it is a TE compute, which is compiled with the program; others are called, and so are kernels that
        refuse positions out of range."""
        return isinstance(self.implementation.payload, TEImplementation) and not self.checked

    @property
    def reason(self) -> str:
        """One line: the priority of the implementation, and the refusals of those before it."""
        accepted = f"{self.priority} accepts"
        return "; ".join([*(f"{c.implementation.dialect.name} refused: {c.refusal}" for c in self.refused), accepted])


def packed_name(choice: Choice) -> str:
    """The name that a library kernel is called by: equal names mean equal kernels. An implementation that replaced
    others in this process has distinct names, because TVM keeps the kernels of those for existing programs."""
    info = choice.info
    implementation = choice.implementation
    version = implementation.identity or implementation.generation
    facts = repr((info.args, info.out, info.device, version, info.layouts, info.orders))
    checked = ".checked" if choice.checked else ""
    return f"meta.{implementation.name}{checked}.{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


ASYNCHRONOUS: Final = (
    "all_gather", "all_reduce", "all_reduce_when", "all_to_all", "broadcast_from", "reduce_scatter", "reduce_to",
    "send_receive",
)  # fmt: skip
"""The collectives that programs begin before other kernels and wait for after them."""
WAIT = "meta.wait"
"""The name by which programs call what ends a collective."""


def start_name(name: str) -> str:
    """The name by which programs call what begins a collective, whose whole has the name `name`."""
    return f"{name}.start"


class Choices:
    """The choices of a program, by call, and in order of first appearance.

    open: calls that have none, because they run eagerly, see `is_open`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.open: list[Call] = []
        self._by_types: dict[object, Choice] = {}
        self.by_call: dict[Call, Choice] = {}

    def of(self, call: Call) -> Choice:
        return self.by_call[call]

    def listed(self) -> list[Choice]:
        """One for each operator and types, with the number of calls."""
        counts = Counter(map(id, self.by_call.values()))
        return [replace(c, calls=counts[id(c)]) for c in self._by_types.values()]

    def packed(self) -> dict[str, Choice]:
        """The library kernels of the program, by the names that it calls them by."""
        return {packed_name(c): c for c in self._by_types.values() if not c.compiled}

    def add(self, call: Call) -> None:
        """Choose for a call; raises DispatchError when no dialect accepts it, DeviceError for another device."""
        if isinstance(call.op, LoopOp):
            return
        op = call.op
        asked, places = (op.call, (op.layouts, op.orders)) if isinstance(op, StridedOp) else (call, ((), ()))
        if not isinstance(asked.op, ForeignOp):
            check_registered(asked.op)
        if isinstance(asked.op, (Var, GlobalVar)) or asked.op.view:
            return
        if is_open(asked):
            self.open.append(asked)
            return
        args = arg_types(asked.args)
        key = (asked.op.name, asked.dialect, args, repr((args, places)), asked.type)
        choice = self._by_types.get(key)
        if choice is None:
            info = CallInfo(cast(Op, asked.op), args, asked.type, self._device(asked), *places)
            checked = positions.checks_always() and positions.is_checked(info)
            choice = self._by_types[key] = replace(self._choose(info, asked.dialect), checked=checked)
        self.by_call[call] = choice

    def _device(self, call: Call) -> Device:
        # A copy may read another device (the copy of a random key does), but its result stays on the program's.
        read = () if cast(Op, call.op).name == "device_copy" else arg_types(call.args)
        devices = {t.device for t in flat_types((*read, call.type))}
        wrong = min(map(str, devices - {self.device}), default="")
        if wrong:
            raise DeviceError(
                "vm", f"{call.op_name} is on {wrong}", f"{self.device}, for which the program is compiled",
                f'compile(..., device="{wrong}") or move the arrays',
            )  # fmt: skip
        return self.device

    def _choose(self, info: CallInfo, dialect: str | None) -> Choice:
        if isinstance(info.op, ForeignOp):
            return Choice(info, info.op.implementation, "the only implementation", ())
        if dialect is not None:
            return self._named(info, dialect)
        tried = foremost_candidates(info, in_program=True)
        first_accepted = accepting(info, tried)
        refused = tuple(takewhile(lambda candidate: candidate is not first_accepted, tried))
        return Choice(info, first_accepted.implementation, first_accepted.priority, refused)

    def _named(self, info: CallInfo, dialect: str) -> Choice:
        """The choice where the program names the dialect."""
        named = implementation(info.op, dialect)
        if named is None:
            raise DispatchError(info.op.name, f"the program asks for {dialect}, which does not implement it")
        refusal = named.refusal(info)
        if refusal is not None:
            raise DispatchError(info.op.name, f"the program asks for {dialect}: {refusal}", remedy="dispatch again")
        return Choice(info, named, f"plevel {named.plevel}", ())


def choose_all(module: Module, device: Device) -> Choices:
    """The choice for every operator call of the module. Raises DispatchError, DeviceError."""
    choices = Choices(device)
    for function in module.functions.values():
        for binding in walk(function):
            if isinstance(binding.value, Call):
                choices.add(binding.value)
    return choices


def private_memory(choices: Choices) -> list[Callable[[], AbstractContextManager[Any]]]:
    """Scopes in which the libraries that allocate memory themselves take memory that nothing else uses: one factory for
    each such dialect of the program."""
    dialects = {c.implementation.dialect.name: c.implementation.dialect for c in choices.listed()}
    return [d.private_memory(choices.device) for d in dialects.values() if d.private_memory is not None]


@record(eq=False)
class Source:
    """A program ready to be lowered: no closures, constants of "main" as its last parameters.

    mutates: flat index of a result -> parameter.  calls: see `meta.vm.lower.calls`.
    budget: the most bytes that it may need, None for no limit.  cpu: that it is compiled for, None for this machine's.
    tuning: choices of its kernels' schedules, None without tuning."""

    module: Module
    constants: tuple[Constant, ...]
    choices: Choices
    mutates: dict[int, int]
    device: Device
    calls: Calls
    budget: int | None = None
    cpu: CpuTarget | None = None
    tuning: KnobChoices | None = None

    def compiling(self) -> AbstractContextManager[None]:
        """The modes that it is compiled in."""
        return scoped(cpu=self.cpu, tuning=self.tuning)

    @property
    def main(self) -> FunctionExpr:
        return self.module.main

    @property
    def target(self) -> Any:
        """The TVM target."""
        with self.compiling():
            return targets.target(self.device.kind)

    @property
    def static(self) -> bool:
        types = (t for p in self.main.params for t in leaf_types(p.type) if isinstance(t, TensorType))
        return all(t.is_static for t in types) and not self.calls_python

    @property
    def calls_python(self) -> bool:
        """Whether the program calls functions in Python, other than library kernels."""
        return bool(self.calls.steps or self.calls.checked or self.choices.open)

    @property
    def reads_values(self) -> bool:
        """Whether some call reads values on the host: positions to check, or whether to communicate."""
        return any(choice.checked or choice.info.op.name == "all_reduce_when" for choice in self.choices.listed())


_FIRST_ORDER = Pipeline((lift_closures, tail_loops, outline_branches, fold_views))


def prepare(module: Module, device: Device, budget: int | None = None) -> Source:
    """Choose dialects and bring the module into the form that is lowered. Raises DispatchError, NotSupportedError.

    budget: see `Source`."""
    main, constants = _constants_to_params(module.main)
    lifted = _FIRST_ORDER(module.with_function("main", main))
    choices = choose_all(lifted, device)
    calls = special_calls(lifted) if contents(lifted).has("", loop_op.NAMESPACE) else Calls()
    return Source(
        lifted, constants, choices, _flat_mutates(module.main), device, calls, budget, modes.cpu, modes.tuning
    )  # fmt: skip


def _constants_to_params(main: FunctionExpr) -> tuple[FunctionExpr, tuple[Constant, ...]]:
    """`main` with a further parameter for each of its constants, and those constants in order. Compiled code then holds
    no data, and the cache on disk serves all data."""
    constants = dict.fromkeys(a for a in block_reads(main.body) if isinstance(a, Constant))
    params = {a: Var(f"const{i}", a.type, a.span) for i, a in enumerate(constants)}
    body = substituted(main, params)
    return replace(body, params=(*body.params, *params.values())), tuple(params)


def _flat_mutates(main: FunctionExpr) -> dict[int, int]:
    """MUTATES with the results counted after nested tuples are taken apart."""
    starts = [0, *accumulate(len(leaf_types(atom.type)) for atom in main.body.results)]
    return {starts[i]: param for i, param in main.attrs.get(MUTATES, {}).items()}


def output_types(source: Source) -> tuple[Type, ...]:
    """The types of what a call returns: the results of "main", flat, less those that replace parameters."""
    flat = leaf_types(source.main.body.type)
    return tuple(t for i, t in enumerate(flat) if i not in source.mutates)


def register_kernels(source: Source) -> None:
    """Make the library kernels of the program known to TVM under the names that the program calls."""
    if source.calls_python:
        register_calls(loops_of(source.module), source.choices.open)
    for name, choice in source.choices.packed().items():
        if tvm.get_global_func(name, allow_missing=True) is None:
            own, info = choice.implementation, choice.info
            kernel = own.checked_kernel(info) if choice.checked else own.dialect.kernel(own, info)
            tvm.register_global_func(name, kept(kernel), override=True)
            if info.op.family == "collective" and own.dialect.name == "torch":
                _register_halves(name, kernel, info.device)


def _register_halves(name: str, kernel: Callable[..., None], device: Device) -> None:
    """Make what begins and what ends a collective known to TVM."""
    from meta.backend.torch.transfers import starter, wait

    tvm.register_global_func(start_name(name), kept(starter(kernel, device)), override=True)
    tvm.register_global_func(WAIT, kept(wait), override=True)
