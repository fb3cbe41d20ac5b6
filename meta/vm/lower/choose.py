"""The dialect of every operator call of a program, each with its reason."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast

from meta.backend.tvm.compute import TEImplementation
from meta.device import Device
from meta.errors import DeviceError, DispatchError
from meta.ir.expr import Call, FunctionExpr, GlobalVar, Var, arg_types
from meta.ir.module import Module
from meta.ir.type import flat_types
from meta.ir.visitor import walk
from meta.op import positions
from meta.op.dispatch import CallInfo, Candidate, Implementation, accepting, foremost_candidates, implementation
from meta.op.registry import Op, check_registered
from meta.records import record
from meta.tracing.foreign_op import ForeignOp
from meta.tracing.loop_op import LoopOp
from meta.vm.lower.open_calls import is_open


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
    facts = repr((info.args, info.out, info.device, choice.implementation.generation))
    checked = ".checked" if choice.checked else ""
    return f"meta.{choice.implementation.name}{checked}.{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


WAIT = "meta.wait"
"""The name by which programs call what ends a collective."""


def start_name(name: str) -> str:
    """The name by which programs call what begins a collective, whose whole has the name `name`."""
    return f"{name}.start"


class Choices:
    """The choices of a program: by call, and in order of first appearance."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._by_types: dict[object, Choice] = {}
        self._by_call: dict[Call, Choice] = {}

    def of(self, call: Call) -> Choice:
        return self._by_call[call]

    def listed(self) -> list[Choice]:
        """One for each operator and types, with the number of calls."""
        counts: dict[int, int] = {}
        for choice in self._by_call.values():
            counts[id(choice)] = counts.get(id(choice), 0) + 1
        return [replace(c, calls=counts[id(c)]) for c in self._by_types.values()]

    def packed(self) -> dict[str, Choice]:
        """The library kernels of the program, by the names that it calls them by."""
        return {packed_name(c): c for c in self._by_types.values() if not c.compiled}

    def add(self, call: Call) -> None:
        """Choose for a call; raises DispatchError when no dialect accepts it, DeviceError for another device."""
        if isinstance(call.op, LoopOp):
            return
        if not isinstance(call.op, ForeignOp):
            check_registered(call.op)
        if isinstance(call.op, (Var, GlobalVar)) or call.op.view or is_open(call):
            return
        args = arg_types(call.args)
        key = (call.op.name, call.dialect, args, repr(args), call.type)
        choice = self._by_types.get(key)
        if choice is None:
            info = CallInfo(cast(Op, call.op), args, call.type, self._device(call))
            checked = positions.checks_always() and positions.is_checked(info)
            choice = self._by_types[key] = replace(self._choose(info, call.dialect), checked=checked)
        self._by_call[call] = choice

    def _device(self, call: Call) -> Device:
        # A copy may read another device, as that of a random key does, but its result stays on the program's.
        read = () if cast(Op, call.op).name == "device_copy" else arg_types(call.args)
        devices = {t.device for t in flat_types((*read, call.type))}
        wrong = min(map(str, devices - {self.device}), default="")
        if wrong:
            raise DeviceError(
                "vm",
                f"{call.op_name} is on {wrong}",
                f"{self.device}, for which the program is compiled",
                f'compile(..., device="{wrong}") or move the arrays',
            )
        return self.device

    def _choose(self, info: CallInfo, dialect: str | None) -> Choice:
        if isinstance(info.op, ForeignOp):
            return Choice(info, info.op.implementation, "the only implementation", ())
        if dialect is not None:
            return self._named(info, dialect)
        tried = foremost_candidates(info, in_program=True)
        first_accepted = accepting(info, tried)
        refused = tuple(itertools.takewhile(lambda candidate: candidate is not first_accepted, tried))
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
        _visit(function, choices)
    return choices


def _visit(function: FunctionExpr, choices: Choices) -> None:
    for binding in walk(function):
        if isinstance(binding.value, Call):
            choices.add(binding.value)


def private_memory(choices: Choices) -> list[Callable[[], AbstractContextManager[Any]]]:
    """Scopes in which the libraries that allocate memory themselves take memory that nothing else uses: one factory for
    each such dialect of the program."""
    dialects = {c.implementation.dialect.name: c.implementation.dialect for c in choices.listed()}
    return [d.private_memory(choices.device) for d in dialects.values() if d.private_memory is not None]
