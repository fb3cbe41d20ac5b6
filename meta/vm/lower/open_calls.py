"""Open calls: the shapes of their results depend on values. A program runs them eagerly, through a function that it
calls by name, and binds its symbolic sizes to those of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray
from meta.ir.expr import Call, FunctionExpr, arg_types
from meta.ir.module import Module
from meta.ir.type import TensorType, Type, leaf_types, tensor_type
from meta.ir.visitor import walk
from meta.op.registry import Op
from meta.op.rules import first_tensor
from meta.vm.lower.python_errors import kept
from meta.vm.lower.types import size_names


def is_open(call: Call) -> bool:
    """Whether values decide the shape of the call's result."""
    op = call.op
    return isinstance(op, Op) and op.resolve is not None and not all(_static(t) for t in leaf_types(call.type))


def _static(kind: Type) -> bool:
    return not isinstance(kind, TensorType) or kind.is_static


def open_calls(function: FunctionExpr) -> Iterator[Call]:
    """The open calls of a function."""
    return (b.value for b in walk(function) if isinstance(b.value, Call) and is_open(b.value))


def function_name(call: Call) -> str:
    """The name that a program calls it by."""
    return f"meta.eager.{call.op_name}.{getattr(call.op, 'revision', 0)}.{_device(call)}"


def _device(call: Call) -> Device:
    tensor = first_tensor(arg_types(call.args))
    assert tensor is not None
    return tensor.device


def register(module: Module) -> None:
    """Make the functions of a module's open calls known to TVM."""
    for function in module.functions.values():
        for call in open_calls(function):
            tvm.register_global_func(function_name(call), kept(_eager(call.op, _device(call))), override=True)


def _eager(op: Any, device: Device) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        kind = tensor_type(tuple(map(int, x.shape)), str(x.dtype), device)
        return invoke(state(op), NDArray(x, kind))._data

    return run


def open_sizes(function: FunctionExpr) -> frozenset[str]:
    """The names of sizes that the open calls of a function define."""
    return frozenset(name for call in open_calls(function) for t in leaf_types(call.type) for name in size_names(t))
