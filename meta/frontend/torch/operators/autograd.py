"""Torch's kernel of an operator that records calls for backward passes, and computes derivatives in forward mode.

It has the place of the kernel that `torch.library.register_autograd` makes, which refuses the transformations of
torch.func and drops the tangents of forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from meta.autograd.transforms import jvp
from meta.frontend.torch.operators.derivatives import backward, call_of, saver
from meta.frontend.torch.operators.schemas import TorchOverload
from meta.frontend.torch.operators.sizes import Symbols
from meta.frontend.torch.operators.traced import Find, TorchTensor, calling_torch, unwrapped
from meta.op.registry import Op
from meta.tree import is_sequence, leaves_of, with_leaves

_BELOW: Any = torch._C._AutoDispatchBelowAutograd
_AFTER: Any = torch._C._after_autograd_keyset
_PLAIN: int = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr()
"""The keys below Autograd of a call that only the kernel for the CPU sees: nothing traces or transforms it."""


def autograd_kernel(op: Op, overload: TorchOverload, find: Find, on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for the dispatch key Autograd, which also gets the keys of the call.

    on_cpu: the kernel for the CPU. Torch's dispatcher would call it in a multiple of the time."""
    target = find(op).overloads[overload.name]
    apply = _recorder(target, op, overload, find, on_cpu)
    as_list = overload.results == "Tensor[]"
    lists = any(p.is_list for p in overload.parameters)

    def run(keys: Any, *args: Any) -> Any:
        is_forward = forward_ad._current_level >= 0
        if is_forward or (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
            flat = tuple(leaves_of(args)) if lists else args
            nest = args if lists else None
            if is_forward or torch._C._are_functorch_transforms_active():
                with enable_single_level_autograd_function():
                    result = apply(keys, nest, *flat)
            else:
                result = apply(keys, nest, *flat)
            return list(result) if as_list else result
        if (keys & _AFTER).raw_repr() == _PLAIN:
            return on_cpu(*args)
        with _BELOW():
            return target.redispatch(keys & _AFTER, *args)

    return run


def _recorder(
    target: Any, op: Op, overload: TorchOverload, find: Find, on_cpu: Callable[..., Any]
) -> Callable[..., Any]:
    """`apply(keys, arguments, *flat arguments)`: the call as a node of torch's graph. arguments: None if no argument is
    a list."""
    save, pull = saver(op, overload), backward(find)

    class _Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, nest: Any, *flat: Any) -> Any:
            args = flat if nest is None else with_leaves(nest, flat)
            ctx.nest = nest
            is_forward = forward_ad._current_level >= 0
            if not is_forward and (keys & _AFTER).raw_repr() == _PLAIN:
                result = on_cpu(*args)
                save(ctx, overload.complete(args), result, is_plain=True)
                return tuple(result) if is_sequence(result) else result
            if is_forward:
                ctx.flat = flat
            # The levels of torch.func around this one record the call too, and `apply` has switched that off.
            with _BELOW(), torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                result = target.redispatch(keys & _AFTER, *args)
                save(ctx, overload.complete(args), result)
            return tuple(result) if is_sequence(result) else result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            needs = ctx.needs_input_grad[2:]
            found = pull(ctx, needs if ctx.nest is None else with_leaves(ctx.nest, needs), gradients)
            return None, None, *(found if ctx.nest is None else leaves_of(found))

        @staticmethod
        def jvp(ctx: Any, *moves: Any) -> Any:
            flat, ctx.flat = ctx.flat, None
            primals = [forward_ad.unpack_dual(x).primal if isinstance(x, torch.Tensor) else x for x in flat]
            tangents = [dx for x, dx in zip(primals, moves[2:], strict=True) if isinstance(x, torch.Tensor)]
            args = tuple(primals) if ctx.nest is None else with_leaves(ctx.nest, primals)
            return _tangents(op, overload, find, args, tangents)

    _Node.__name__ = f"{op.basename}Backward"
    # Function.apply takes calls inside of torch.func's transformations to its own rules. This kernel runs below them,
    # as the kernels of torch's operators do, on the tensors of one level.
    single_level: Any = super(torch.autograd.Function, _Node)
    return single_level.apply


def _tangents(op: Op, overload: TorchOverload, find: Find, args: tuple[Any, ...], moves: list[Any]) -> Any:
    """The tangents of a call's results, by meta's rules. moves: the tangents of its tensors, None for zeros."""
    symbols = Symbols()
    call, tensors = call_of(op, overload, args, symbols)
    tangents = tuple(None if dx is None else TorchTensor(dx, symbols) for dx in moves)
    with calling_torch(symbols, find):
        results, out = jvp(call, tuple(TorchTensor(x, symbols) for x in tensors), tangents)
        pairs = list(zip(leaves_of(unwrapped(results)), leaves_of(unwrapped(out)), strict=True))
    found = tuple(dy if y.is_floating_point() or y.is_complex() else None for y, dy in pairs)
    return found[0] if overload.results == "Tensor" else found
