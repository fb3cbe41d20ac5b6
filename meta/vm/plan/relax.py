"""Lists of kernel calls from Relax functions, and planned lists as Relax functions, from which the virtual machine is
built.

The functions that are read are in the form that lowering and fusion leave them in: `call_tir` and `call_dps_packed`
with values as operands and results, nothing written in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from meta.backend.tvm import adapter as tvm
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PARAMETER,
    PLANNED,
    Destination,
    Destinations,
    KernelCall,
    KernelList,
    ObjectCall,
    Operand,
    Shape,
    Tensor,
    Value,
    leaves,
)


def _fields(value: Value) -> tuple[Value, ...]:
    assert isinstance(value, tuple)
    return cast("tuple[Value, ...]", value)


def is_group(function: Any) -> bool:
    """Whether a function is a group made by FuseOps."""
    return isinstance(function, tvm.RelaxFunction) and bool(function.attrs) and "Primitive" in function.attrs


def read_functions(module: Any, mutates: Mapping[int, int]) -> list[KernelList]:
    """The Relax functions of a module, first "main".

    mutates: result of "main" (a tuple of tensors) -> parameter that it replaces."""
    functions = {str(n.name_hint): f for n, f in module.functions.items() if isinstance(f, tvm.RelaxFunction)}
    lists = [_Reader(name, functions[name]).read() for name in sorted(functions, key=lambda name: name != "main")]
    main = lists[0]
    results = list(leaves(main.result))
    params = [next(leaves(value)).tensor for _, value in main.parameters]
    main.updates = [(results[i], params[p]) for i, p in mutates.items()]
    remaining = tuple(r for i, r in enumerate(results) if i not in mutates)
    main.result = remaining[0] if len(remaining) == 1 else remaining
    for each in lists:
        each.remove_dead_steps()
        for operand in leaves(each.result):
            if operand.tensor.memory.kind == PLANNED:
                operand.tensor.memory.kind = OWN
    return lists


class _Reader:
    """Reads one function. values: of its variables, by their addresses."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self.function = function
        self.values: dict[int, Value] = {}
        self.steps: list[Any] = []
        self.numbers: dict[str, int] = {}

    def read(self) -> KernelList:
        parameters: list[tuple[Any, Value]] = []
        for param in elements(self.function.params):
            value = self.new(param.name, param.ty, PARAMETER)
            self.values[param.__chandle__()] = value
            parameters.append((param, value))
        for block in elements(self.function.body.blocks):
            for binding in elements(block.bindings):
                self.bind(binding)
        return KernelList(self.name, parameters, self.steps, self.value(self.function.body.body), self.function)

    def bind(self, binding: Any) -> None:
        var, address = binding.var, binding.var.__chandle__()
        if isinstance(binding, tvm.MatchCast):
            self.values[address] = self.object_call(var.name, binding.value, binding.ty, checks=True)
            return
        value = binding.value
        name = str(getattr(value.op, "name", "")) if isinstance(value, tvm.RelaxCall) else ""
        if name in ("relax.call_tir", "relax.call_dps_packed"):
            self.values[address] = self.kernel_call(var, value)
        elif name == "relax.reshape":
            self.values[address] = self.view(value)
        elif isinstance(value, (tvm.RelaxCall, tvm.RelaxIf)):
            self.values[address] = self.object_call(var.name, value, var.ty)
        else:
            self.values[address] = self.value(value)

    def value(self, expression: Any) -> Value:
        """The value of an expression that computes nothing."""
        if isinstance(expression, tvm.RelaxVar) and not isinstance(expression.ty, tvm.PrimType):
            return self.values[expression.__chandle__()]
        if isinstance(expression, tvm.RelaxTuple):
            return tuple(self.value(field) for field in elements(expression.fields))
        if isinstance(expression, tvm.RelaxTupleGetItem):
            return _fields(self.value(expression.tuple_value))[expression.index]
        if isinstance(expression, tvm.RelaxConstant):
            return self.object_call("const", expression, expression.ty)
        return expression

    def view(self, call: Any) -> Value:
        operand = self.value(call.args[0])
        assert isinstance(operand, Operand)
        shape = sizes(call.args[1].values)
        same = all(isinstance(d, int) for d in shape) and operand.tensor.shape == shape
        return Operand(operand.tensor, None if same else shape)

    def kernel_call(self, var: Any, call: Any) -> Value:
        """A call that gets its operands, then its results, then sizes."""
        callee, operands, *more = elements(call.args)
        is_packed = not isinstance(callee, tvm.GlobalVar)
        arguments = list(_fields(self.value(operands)))
        outputs = self.new(var.name, call.ty_args[0])
        results = [operand.tensor for operand in leaves(outputs)]
        writes = {len(arguments) + i: tensor for i, tensor in enumerate(results)}
        arguments += map(Operand, results)
        for each in more:
            arguments += elements(each.values)
        name = str(callee.global_symbol if is_packed else callee.name_hint)
        self.steps.append(KernelCall(name, is_packed, tuple(arguments), writes))
        return outputs

    def object_call(self, name: str, value: Any, kind: Any, checks: bool = False) -> Value:
        """What the machine calls with objects."""
        if isinstance(value, tvm.RelaxCall) and str(getattr(value.op, "name", "")) == "relax.call_pure_packed":
            value = tvm.RelaxCall(value.args[0], list(value.args)[1:], value.attrs, value.ty_args)
        operands = {v: self.value(v) for v in tvm.relax.analysis.free_vars(value)}
        result = self.new(name, kind, OBJECT)
        self.steps.append(ObjectCall(value, operands, result, kind, checks))
        return result

    def new(self, name: str, kind: Any, memory: str = "") -> Value:
        """A new tensor of a Relax type, or a tuple of them."""
        if isinstance(kind, tvm.TupleType):
            return tuple(self.new(name, field, memory) for field in elements(kind.fields))
        is_tensor = isinstance(kind, tvm.TensorType)
        shape = sizes(kind.shape.values) if is_tensor and kind.shape is not None else None
        tensor = Tensor(self.unique(name), shape, str(kind.dtype) if is_tensor else "")
        tensor.memory.kind = memory or (PLANNED if tensor.is_static else OWN)
        return Operand(tensor)

    def unique(self, name: str) -> str:
        count = self.numbers[name] = self.numbers.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"


def sizes(values: Sequence[Any]) -> Shape:
    """Sizes of axes, as integers where they are known."""
    return tuple(int(d) if isinstance(d, (int, tvm.IntImm)) else d for d in elements(values))


def elements(array: Any) -> list[Any]:
    """The elements of an array of TVM, in a quarter of the time of its iterator."""
    get = tvm.array_item
    return [get(array, i) for i in range(len(array))]


class ListEmitter:
    """Writes one list. callees: the GlobalVars of functions by name.

    takes_memory: the function gets the memory of its tensors from its caller, as further parameters."""

    def __init__(self, function: KernelList, callees: Mapping[str, Any], *, takes_memory: bool) -> None:
        self.function = function
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
        return Destinations((*self.function.storages, *self.owned), tuple(self.destinations), len(self.function.calls))

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

        def renamed(var: Any) -> Any:
            return names.get(var, var)

        def callee_of(name: Any) -> Any:
            return self.callees.get(str(name.name_hint), name)

        value = tvm.structural_map(call.expression, [(tvm.RelaxVar, renamed), (tvm.GlobalVar, callee_of)])
        if call.checks:
            result = tvm.RelaxVar("sized", call.kind)
            self.bindings.append(tvm.MatchCast(result, value, call.kind))
        else:
            result = self.bind("object", call.kind, value)
        self.unpack(result, call.result, needed)

    def value(self, value: Value) -> Any:
        """The variable of an operand, a tuple, or the argument itself."""
        if isinstance(value, tuple):
            return tvm.RelaxTuple([self.value(field) for field in cast("tuple[Value, ...]", value)])
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
        is_planned = memory.kind == PLANNED
        key = (memory.storage, memory.offset, tensor.shape, tensor.dtype) if is_planned else memory
        if key not in self.placed:
            self.placed[key] = self.destination(tensor, memory.storage, memory.offset)
        return self.placed[key]

    def destination(self, tensor: Tensor, storage: int, offset: int) -> Any:
        """A variable for a tensor in a storage; storage -1: with separate memory."""
        assert tensor.shape is not None
        kind = tvm.TensorType(list(tensor.shape), tensor.dtype)
        if self.takes_memory:
            if storage < 0:
                storage = len(self.function.storages) + len(self.owned)
                self.owned.append(tensor.bytes)
            var = tvm.RelaxVar(tensor.name, kind)
            self.params.append(var)
            self.destinations.append(Destination(storage, offset, tuple(map(int, tensor.shape)), tensor.dtype))
            return var
        shape = tvm.ShapeExpr(list(tensor.shape))
        if storage < 0:
            return self.bind(tensor.name, kind, tvm.relax.op.builtin.alloc_tensor(shape, tensor.dtype, 0))
        memory = tvm.relax.op.memory
        if storage not in self.storages:
            call = memory.alloc_storage(tvm.ShapeExpr([self.function.storages[storage]]), 0, "global", "uint8")
            self.storages[storage] = self.bind(f"storage{storage}", call.ty, call)
        call = memory.alloc_tensor(self.storages[storage], offset, shape, tensor.dtype)
        return self.bind(tensor.name, kind, call)


def _type_of(value: Any) -> Any:
    if isinstance(value, tvm.RelaxTuple):
        return tvm.TupleType([_type_of(field) for field in value.fields])
    return value.ty
