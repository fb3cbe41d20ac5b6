"""Programs on another device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meta.device import Device
from meta.device import device as parse_device
from meta.ir.builder import Module
from meta.ir.expr import Binding, Block, Call, Constant, Expr, FunctionExpr, GlobalVar, Var, operands
from meta.ir.type import FunctionType, TensorType, TupleType, Type, tensor_type
from meta.ir.visitor import nested_blocks, with_blocks, with_operands, with_results
from meta.passes.manager import Pass
from meta.tracing.loop_op import LoopOp, with_rewritten_body


def place(device: Device | str) -> Pass:
    """The pass that puts a whole program on one device: parameters, constants and results, new tensors, and copies
    between devices. Dialects that calls name are dropped, because they were chosen for the old device.

    program = meta.passes.place("cuda")(meta.frontend.relay.from_relay("model.relay", "model.params"))
    executor = meta.vm.compile(program, device="cuda")

    Constants move when the program runs (the VM copies them once). Raises DeviceError for an unknown device."""
    target = parse_device(device)

    def run(module: Module) -> Module:
        return Module({name: _Placer(target).function(f) for name, f in module.functions.items()})

    return Pass("place", run, place.__doc__ or "")


class _Placer:
    """One traversal of one function. Apart from the device types stay the same, so no type rule runs."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.moved: dict[Any, Any] = {}

    def type(self, kind: Type) -> Type:
        match kind:
            case TensorType():
                return tensor_type(kind.shape, kind.dtype, self.device)
            case TupleType():
                return TupleType(tuple(map(self.type, kind.fields)))
            case FunctionType():
                return FunctionType(tuple(map(self.type, kind.params)), self.type(kind.result))
            case _:
                return kind

    def atom(self, atom: Any) -> Any:
        """The atom with its new type, the same one for each use."""
        if atom not in self.moved:
            assert isinstance(atom, (Var, Constant, GlobalVar))
            self.moved[atom] = replace(atom, type=self.type(atom.type))
        return self.moved[atom]

    def function(self, function: FunctionExpr) -> FunctionExpr:
        return replace(function, params=tuple(map(self.atom, function.params)), body=self.block(function.body))

    def block(self, block: Block) -> Block:
        bindings = tuple(Binding(self.atom(b.var), self.value(b.value)) for b in block.bindings)
        return Block(bindings, with_results(block, [self.atom(a) for a in block.results]))

    def value(self, value: Expr) -> Expr:
        if isinstance(value, FunctionExpr):
            return self.function(value)
        new = with_operands(value, [self.atom(a) for a in operands(value)])
        if isinstance(new, Call) and isinstance(new.op, LoopOp):
            if new.op.body is not None:
                return with_rewritten_body(new, new.args, self.function)
            placed = replace(new.op, result=self.type(new.op.result))
            return replace(new, op=placed, type=placed.result)
        if isinstance(new, Call):
            args = tuple(self.device if isinstance(a, Device) else a for a in new.args)
            return replace(new, args=args, type=self.type(new.type), dialect=None)
        return with_blocks(new, tuple(map(self.block, nested_blocks(new))))
