"""What torch asks of an operator besides its kernels: types of results, mixed precision, and the operator that stands
in for it where gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.utils import lookup_op
from torch.autograd import forward_ad

from meta.errors import DeviceError, NotSupportedError
from meta.frontend.torch.operators.kernels import undeclared
from meta.frontend.torch.operators.schemas import TorchOverload
from meta.frontend.torch.operators.sizes import Symbols, infer
from meta.frontend.torch.operators.traced import Find
from meta.ir.type import TensorType, TupleType, Value
from meta.op.precision import data_positions, needs_cast, target_dtype
from meta.op.registry import Op, get
from meta.tree import is_sequence, leaves_of

Kernel = Callable[..., Any]


def at_first_call(make: Callable[[], Kernel]) -> Kernel:
    """A kernel that is made at its first call."""
    cell: list[Kernel] = []

    def run(*args: Any) -> Any:
        if not cell:
            cell.append(make())
        return cell[0](*args)

    return run


def fake(op: Op, overload: TorchOverload) -> Kernel:
    """The kernel on tensors without memory: the type function."""

    def run(*args: Any) -> Any:
        symbols = Symbols()
        args = overload.complete(args)
        kinds = dict.fromkeys(x.device.type for x in leaves_of(args) if isinstance(x, torch.Tensor))
        if "meta" in kinds and len(kinds) > 1:  # type functions take it for the CPU
            raise DeviceError(op.name, f"operands are on {' and '.join(kinds)}", "operands that are all on one device")
        out = infer(op, overload.types(op.name, args, symbols.type, symbols.dim), symbols)
        if isinstance(out, Value):
            raise NotSupportedError(op.name, "torch cannot call it: it returns a number", "operators of tensors")
        first = next((x for x in leaves_of(args) if isinstance(x, torch.Tensor)), None)
        fields = out.fields if isinstance(out, TupleType) else (out,)
        results = [_empty(t, symbols, None if first is None else first.device) for t in fields]
        if overload.results == "Tensor":
            if len(results) > 1:
                raise undeclared(op)
            return results[0]
        return results if overload.results == "Tensor[]" else tuple(results)

    return run


def _empty(kind: Any, symbols: Symbols, where: torch.device | None) -> torch.Tensor:
    on = where or torch.device(kind.device.kind)
    return torch.empty([symbols.size(d) for d in kind.shape], dtype=getattr(torch, kind.dtype), device=on)


def autocast(op: Op, overload: TorchOverload, kind: str) -> Kernel:
    """The kernel under torch's autocast of a kind of device: operands are cast by the operator's rule."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{kind.upper()}"))
    names = f"{op.namespace or 'meta'}::{op.basename}"
    call = at_first_call(lambda: _overload(names, overload.name))

    def run(*args: Any) -> Any:
        args = overload.complete(args)
        low = str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
        symbols = Symbols()
        types = overload.types(op.name, args, symbols.type, symbols.dim)
        dtype = target_dtype(op, types, low, {})
        values = list(args)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            for i in data_positions(op) if dtype is not None else ():
                values[i] = _cast(values[i], types[i], str(dtype))
            return call(*values)

    return run


def _cast(value: Any, kind: Any, dtype: str) -> Any:
    if is_sequence(value):
        return [_cast(x, t, dtype) for x, t in zip(value, kind, strict=True)]
    return value.to(getattr(torch, dtype)) if isinstance(kind, TensorType) and needs_cast(kind, dtype) else value


def _overload(name: str, overload: str) -> Any:
    return lookup_op(f"{name}.{overload}".rstrip("."))


def recorded(op: Op, overload: TorchOverload, find: Find) -> Kernel:
    """The kernel where gradients are recorded, for an operator whose gradient reads further results of another."""

    def run(keys: Any, *args: Any) -> Any:
        is_forward = forward_ad._current_level >= 0
        if is_forward or (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
            return find(get(op.recorded_as)).overloads[overload.name](*args)[0]
        with torch._C._AutoDispatchBelowAutograd():
            return find(op).overloads[overload.name].redispatch(keys & torch._C._after_autograd_keyset, *args)

    return run
