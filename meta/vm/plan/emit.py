"""Planned lists as Relax functions, the form that the virtual machine is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.vm.plan.allocations import Destination, Destinations
from meta.vm.plan.kernels import (
    PLANNED,
    KernelCall,
    KernelList,
    ObjectCall,
    Operand,
    Shape,
    Tensor,
    Value,
    leaves,
)
from meta.vm.plan.substitution import Substitution


class ListEmitter:
    """Writes one list. callees: the GlobalVars of functions by name.  storages: bytes, by number.

    takes_memory: the function gets the memory of its tensors from its caller, as further parameters."""

    def __init__(
        self, function: KernelList, storages: Sequence[int], callees: Mapping[str, Any], *, takes_memory: bool = False
    ) -> None:
        self.function = function
        self.sizes = storages
        self.callees = callees
        self.takes_memory = takes_memory
        self.bindings: list[Any] = []
        self.params = [var for var, _ in function.parameters]
        self.tensors: dict[Tensor, Any] = {}
        self.views: dict[Any, Any] = {}
        self.storages: dict[int, Any] = {}
        self.placed: dict[Any, Any] = {}
        self.destinations: list[Destination] = []
        self.owned: list[int] = []

    def emit(self) -> Any:
        """The Relax function."""
        needed = {o.tensor for step in self.function.steps for o in step.reads}
        needed |= {o.tensor for o in leaves(self.function.result)}
        for var, value in self.function.parameters:
            self.unpack(var, value, needed)
            for tensor in (o.tensor for o in leaves(value)):
                self.placed[tensor.memory] = self.tensors.get(tensor)
        for step in self.function.steps:
            if isinstance(step, KernelCall):
                self.kernel_call(step)
            else:
                self.object_call(step, needed)
        result = self.value(self.function.result)
        if isinstance(result, tvm.RelaxTuple):
            result = self.bind("results", _type_of(result), result)
        body = tvm.SeqExpr([tvm.BindingBlock(self.bindings)], result)
        before = self.function.function
        kind = result.ty if self.function.name == "main" else before.ret_ty
        function = tvm.RelaxFunction(self.params, body, kind, True, before.attrs)
        return function.with_attr("relax.force_pure", True)

    def described(self) -> Destinations:
        """The further parameters of the function."""
        storages = (*self.sizes, *self.owned)
        return Destinations(storages, tuple(self.destinations), len(self.function.calls))

    def bind(self, name: str, kind: Any, value: Any) -> Any:
        var = tvm.RelaxVar(name, kind)
        self.bindings.append(tvm.VarBinding(var, value))
        return var

    def unpack(self, var: Any, value: Value, needed: set[Tensor]) -> None:
        """Bind the tensors that are needed of a value that `var` has."""
        if isinstance(value, Operand):
            self.tensors[value.tensor] = var
            return
        for i, each in enumerate(value):
            if any(o.tensor in needed for o in leaves(each)):
                item = tvm.RelaxTupleGetItem(var, i)
                self.unpack(self.bind(f"{var.name}_{i}", var.ty.fields[i], item), each, needed)

    def kernel_call(self, call: KernelCall) -> None:
        arguments = [self.value(a) for a in call.arguments]
        callee = tvm.ExternFunc(call.function) if call.packed else self.callees[call.function]
        for position, tensor in call.writes.items():
            if isinstance(argument := call.arguments[position], Operand) and argument.tensor is not tensor:
                self.tensors[tensor] = arguments[position]
        # A loop calls functions of the machine. They return to the register of the call in progress: it needs one.
        kind = tvm.AnyType() if call.packed else tvm.TupleType([])
        self.bind("_", kind, tvm.RelaxCall(callee, arguments, ty_args=[kind]))

    def object_call(self, call: ObjectCall, needed: set[Tensor]) -> None:
        names = {var: self.value(value) for var, value in call.operands.items()}
        value = Substitution(names, self.callees).value(call.expression)
        if call.checks:
            result = tvm.RelaxVar("sized", call.kind)
            self.bindings.append(tvm.MatchCast(result, value, call.kind))
        else:
            result = self.bind("object", call.kind, value)
        self.unpack(result, call.result, needed)

    def value(self, value: Value) -> Any:
        """The variable of an operand, a tuple, or the argument itself."""
        if isinstance(value, tuple):
            return tvm.RelaxTuple([self.value(each) for each in value])
        if isinstance(value, int):
            return tvm.IntImm("int64", value)
        if not isinstance(value, Operand):
            return value
        var = self.tensor(value.tensor)
        if value.view is None:
            return var
        key = var, str(value.view)
        if key not in self.views:
            call = tvm.relax.op.reshape(var, tvm.ShapeExpr(list(value.view)))
            kind = tvm.TensorType(list(value.view), value.tensor.dtype)
            self.views[key] = self.bind(f"{var.name}_view", kind, call)
        return self.views[key]

    def tensor(self, tensor: Tensor) -> Any:
        """The variable of a tensor, for which memory is found when it is first needed."""
        if tensor not in self.tensors:
            self.tensors[tensor] = self.place(tensor)
        return self.tensors[tensor]

    def place(self, tensor: Tensor) -> Any:
        memory = tensor.memory
        if memory in self.placed:
            return self.placed[memory]
        shape = tensor.shape
        assert shape is not None
        kind = tvm.TensorType(list(shape), tensor.dtype)
        if memory.kind == PLANNED:
            key = memory.storage, memory.offset, shape, tensor.dtype
            if key not in self.placed:
                self.placed[key] = self.destination(tensor, kind, memory.storage, memory.offset)
            return self.placed[key]
        self.placed[memory] = self.destination(tensor, kind, -1, 0)
        return self.placed[memory]

    def destination(self, tensor: Tensor, kind: Any, storage: int, offset: int) -> Any:
        """A variable for a tensor in a storage; storage -1: with separate memory."""
        if self.takes_memory:
            if storage < 0:
                storage = len(self.sizes) + len(self.owned)
                self.owned.append(tensor.bytes)
            var = tvm.RelaxVar(tensor.name, kind)
            self.params.append(var)
            self.destinations.append(Destination(storage, offset, _known(tensor.shape), tensor.dtype))
            return var
        shape = tvm.ShapeExpr(list(tensor.shape or ()))
        if storage < 0:
            return self.bind(tensor.name, kind, tvm.relax.op.builtin.alloc_tensor(shape, tensor.dtype, 0))
        memory = tvm.relax.op.memory
        if storage not in self.storages:
            call = memory.alloc_storage(tvm.ShapeExpr([self.sizes[storage]]), 0, "global", "uint8")
            self.storages[storage] = self.bind(f"storage{storage}", call.ty, call)
        call = memory.alloc_tensor(self.storages[storage], offset, shape, tensor.dtype)
        return self.bind(tensor.name, kind, call)


def _known(shape: Shape | None) -> tuple[int, ...]:
    assert shape is not None
    return tuple(map(int, shape))


def _type_of(value: Any) -> Any:
    if isinstance(value, tvm.RelaxTuple):
        return tvm.TupleType([_type_of(field) for field in value.fields])
    return value.ty
