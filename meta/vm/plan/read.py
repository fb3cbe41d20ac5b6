"""Relax functions as lists of kernel calls.

The functions are in the form that lowering and fusion leave them in: `call_tir` and `call_dps_packed` with values as
operands and results, nothing written in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PARAMETER,
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


def read_functions(module: Any, mutates: Mapping[int, int]) -> dict[str, KernelList]:
    """The Relax functions of a module. mutates: result of "main" (a tuple of tensors) -> parameter that it replaces."""
    functions = [f for f in module.functions.items() if isinstance(f[1], tvm.RelaxFunction)]
    lists = {str(name.name_hint): _Reader(str(name.name_hint), f).read() for name, f in functions}
    main = lists["main"]
    results: tuple[Any, ...] = main.result if isinstance(main.result, tuple) else (main.result,)
    params = [next(leaves(value)).tensor for _, value in main.parameters]
    main.updates = [(results[i], params[p]) for i, p in mutates.items()]
    remaining = tuple(r for i, r in enumerate(results) if i not in mutates)
    main.result = remaining[0] if len(remaining) == 1 else remaining
    for each in lists.values():
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
            fields = self.value(expression.tuple_value)
            assert isinstance(fields, tuple)
            return fields[expression.index]
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
        values = self.value(operands)
        assert isinstance(values, tuple)
        arguments: list[Any] = list(values)
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
