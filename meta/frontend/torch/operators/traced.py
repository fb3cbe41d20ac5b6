"""Calls of meta's functions on torch's tensors that become calls of torch's operators.

Gradients and batching rules are functions of meta's tensors. Inside of `calling_torch`, each operator that they call on
a `TorchTensor` is called as torch's operator of that name, so that torch differentiates, batches and traces them: a
backward pass that ran meta's kernels itself could not be traced, as fake tensors have no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from meta.eager.bases import TypedTensor
from meta.eager.ndarray import NDArray
from meta.errors import GradientError, NotSupportedError, TraceError
from meta.frontend.torch.operators.kernels import tensor_of
from meta.frontend.torch.operators.schemas import overload_of, returns_values, to_torch
from meta.frontend.torch.operators.sizes import Symbols, infer
from meta.ir.type import TensorType, Value
from meta.modes import modes, scoped, suspended
from meta.op.registry import Op, as_type
from meta.tree import is_sequence, leaves_of, with_leaves


class TorchTensor(TypedTensor):
    """A tensor of torch with the methods and operators of an array. value: may be fake, batched or tracked."""

    __slots__ = ("value",)

    @property
    def requires_grad(self) -> bool:
        """False: torch records gradients, not meta."""
        return False

    @requires_grad.setter
    def requires_grad(self, required: bool) -> None:
        del required
        raise GradientError("requires_grad", f"it is set on {self!r}", "tensors of torch", "set it before the call")

    def __init__(self, value: torch.Tensor, symbols: Symbols) -> None:
        self.value = value
        self.type = symbols.type(value)
        self.origin = self.aliases = None

    def _no_value(self, *_: object, **__: object) -> Any:
        raise TraceError(
            "torch", f"the value of {self!r} is needed while torch may trace the call", "shapes and dtypes"
        )

    __bool__ = __int__ = __float__ = __index__ = __array__ = __dlpack__ = _no_value
    item = numpy = tolist = _no_value
    __hash__ = object.__hash__  # `==` is an operator, identity stays hashable

    def __repr__(self) -> str:
        return f"<TorchTensor: {self.type!r}>"


Find = Callable[[Op], Any]
"""Operator -> torch's packet of its overloads."""


@contextmanager
def calling_torch(symbols: Symbols, find: Find) -> Generator[None, None, None]:
    """Inside the block, operators of this thread are called as torch's operators."""

    def emit(op: Op, args: tuple[Any, ...]) -> Any:
        return _call(op, args, symbols, find)

    with suspended(), scoped(autocast=None):
        modes.emit = emit
        yield


def _call(op: Op, args: tuple[Any, ...], symbols: Symbols, find: Find) -> Any:
    is_reshape = op.view and op.pattern == "injective"
    if is_reshape or not any(isinstance(leaf, TypedTensor) for leaf in leaves_of(args)) or returns_values(op):
        out = infer(op, tuple(map(as_type, args)), symbols)
        if isinstance(out, Value):
            return out.value
        if is_reshape and isinstance(out, TensorType):  # an operator of torch copies
            return TorchTensor(_value(args[0]).reshape([symbols.size(d) for d in out.shape]), symbols)
    packet = find(op)
    overload = overload_of(op, args)
    parameters = packet.parameters[overload]
    values: list[Any] = []
    for arg, parameter in zip(args, parameters, strict=True):
        if parameter.is_tensor:
            values.append(with_leaves(arg, [_value(x) for x in leaves_of(arg)]))
        else:
            values.append(to_torch(arg, symbols.size, parameter))
    with suspended():  # the kernels call meta's functions on arrays
        result = packet.overloads[overload](*values)
    if is_sequence(result):
        return tuple(TorchTensor(y, symbols) for y in result)
    return TorchTensor(result, symbols)


def _value(x: Any) -> Any:
    if isinstance(x, TorchTensor):
        return x.value
    if isinstance(x, NDArray):
        return tensor_of(x)
    if x is None:
        return None
    raise NotSupportedError("torch", f"an operand is {x!r}"[:200], "tensors of torch")


def unwrapped(value: Any) -> Any:
    """A result as torch's tensor; None stays."""
    return with_leaves(value, [_value(x) for x in leaves_of(value)])
