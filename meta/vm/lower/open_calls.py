"""Open calls: the shapes of their results depend on values. A program runs them eagerly, through a function that it
calls by name, and binds its symbolic sizes to the result's sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray
from meta.ir.expr import Call, arg_types
from meta.ir.type import tensor_type
from meta.op.rules import first_tensor
from meta.vm.lower.python_errors import kept


def function_name(call: Call) -> str:
    """The name that a program calls it by."""
    return f"meta.eager.{call.op_name}.{getattr(call.op, 'revision', 0)}.{_device(call)}"


def _device(call: Call) -> Device:
    tensor = first_tensor(arg_types(call.args))
    assert tensor is not None
    return tensor.device


def register(calls: Iterable[Call]) -> None:
    """Make the functions of open calls known to TVM."""
    for call in calls:
        tvm.register_global_func(function_name(call), kept(_eager(call.op, _device(call))), override=True)


def _eager(op: Any, device: Device) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        kind = tensor_type(tuple(map(int, x.shape)), str(x.dtype), device)
        return invoke(state(op), NDArray(x, kind))._data

    return run
