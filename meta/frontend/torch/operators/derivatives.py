"""Gradients of torch's operators by meta's rules, and batching by `meta.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from marshal import dumps
from typing import Any

import torch

from meta.autograd.batch import vmap
from meta.eager.call import CACHE_LIMIT
from meta.frontend.torch.operators.kernels import array_of, function_of, stream_of, taker, tensor_of
from meta.frontend.torch.operators.schemas import TorchOverload
from meta.frontend.torch.operators.sizes import Symbols
from meta.frontend.torch.operators.traced import Find, TorchTensor, calling_torch, unwrapped
from meta.modes import GradMode
from meta.op.grad.rule import GradRule, gradient_rule, rule_for
from meta.op.registry import Op
from meta.records import record
from meta.tree import is_sequence, leaves_of, with_leaves

functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009  # which type checkers do not know
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@record(eq=False)
class _Saved:
    """A tensor that the gradient reads. index: among the saved tensors."""

    index: int


@record(eq=False)
class _Call:
    """What the gradient of a call reads: arguments and results of meta, tensors as `_Saved` or as types."""

    rule: GradRule
    args: tuple[Any, ...]
    outs: tuple[Any, ...]
    flows: frozenset[int]
    symbols: Symbols | None
    """None for a call of plain tensors, which others of the same types share."""
    saved: tuple[int, ...]
    """Of the tensors of the call, arguments before results."""


def saver(op: Op, overload: TorchOverload) -> Callable[..., None]:
    """`save(context, complete arguments, result, is_plain=False)` keeps what the gradient of a call reads.

    is_plain: whether the tensors are plain ones, so that another call of the same types needs the same."""
    calls: dict[Any, _Call] = {}
    lists = any(p.is_list for p in overload.parameters)

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any, is_plain: bool = False) -> None:
        ctx.set_materialize_grads(False)
        results = tuple(output) if is_sequence(output) else (output,)
        flat = leaves_of(inputs) if lists else inputs
        tensors = [x for x in (*flat, *results) if isinstance(x, torch.Tensor)]
        rule = gradient_rule(op.name)
        if rule is None or not rule.differentiable:
            ctx.call = None
            ctx.mark_non_differentiable(*results)
            return
        key = _key_of(id(rule), inputs, tensors) if is_plain and not lists else None
        call = calls.get(key)
        if call is None:
            call = _call(op, overload, rule, inputs, results)
            if key is not None:
                if len(calls) >= CACHE_LIMIT:
                    calls.clear()
                calls[key] = call = replace(call, symbols=None)
        ctx.call = call
        if len(call.flows) < len(results):
            ctx.mark_non_differentiable(*[y for i, y in enumerate(results) if i not in call.flows])
        ctx.save_for_backward(*[tensors[i] for i in call.saved])

    return save


def _key_of(rule: int, inputs: tuple[Any, ...], tensors: list[torch.Tensor]) -> Any:
    """By which a call of plain tensors finds one of the same types; None if it has attributes without a text."""
    try:
        rest = dumps([... if isinstance(x, torch.Tensor) else x for x in inputs], 2)
    except ValueError:
        return None
    return (rule, rest, *[x.dtype for x in tensors], *[x.shape for x in tensors])


def _call(
    op: Op, overload: TorchOverload, rule: GradRule, inputs: tuple[Any, ...], results: tuple[torch.Tensor, ...]
) -> _Call:
    """What the gradient of a call reads."""
    symbols = Symbols()
    saved: list[int] = []
    number = count()

    def keep(x: Any, is_read: bool) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        index = next(number)
        if not is_read:
            return symbols.type(x)
        saved.append(index)
        return _Saved(len(saved) - 1)

    args = tuple(
        _kept(p.is_list, keep, value, i in rule.saved_args) if p.is_tensor and value is not None
        else p.normal(op.name, value, symbols.dim)
        for i, (p, value) in enumerate(zip(overload.parameters, inputs, strict=True))
    )  # fmt: skip
    types = [symbols.type(y) for y in results]
    outs = tuple(keep(y, rule.saves(i)) for i, y in enumerate(results))
    return _Call(rule_for(rule, types), args, outs, rule.flowing(types), symbols, tuple(saved))


def _kept(is_list: bool, keep: Callable[[Any, bool], Any], value: Any, is_read: bool) -> Any:
    return tuple(keep(x, is_read) for x in value) if is_list else keep(value, is_read)


def backward(find: Find) -> Callable[..., Any]:
    """The function that computes the gradients of a call: `run(context, wanted_of, gradients)`.

    wanted_of: which arguments need a gradient, without defaults at the end, which torch leaves out.  gradients: of the
    results, None where there is none."""

    def run(ctx: Any, wanted_of: tuple[Any, ...], gradients: tuple[Any, ...]) -> Any:
        call: _Call | None = ctx.call
        if call is None:
            return tuple([None] * len(w) if is_sequence(w) else None for w in wanted_of)
        rule = call.rule
        dys = {i: dy for i, dy in enumerate(gradients) if dy is not None and i in call.flows}
        wanted = [wanted_of[p] if p < len(wanted_of) else False for p in rule.differentiable]
        needs = tuple([w if w is True or w is False else any(w) for w in wanted])
        rule.check_available(needs)
        saved = ctx.saved_tensors
        if _is_plain((*saved, *dys.values())):
            found = _by_arrays(call, needs, saved, dys)
        else:
            symbols = call.symbols or Symbols()
            with calling_torch(symbols, find):
                operands = _operands(call, [TorchTensor(x, symbols) for x in saved],
                                     {i: TorchTensor(dy, symbols) for i, dy in dys.items()})  # fmt: skip
                found = unwrapped(rule.function(needs, *operands))
        # Torch takes () for a list of tensors.
        out: list[Any] = [None if w is True or w is False else [None] * len(w) for w in wanted_of]
        for p, want, gradient in zip(rule.differentiable, wanted, found, strict=True):
            if want:
                out[p] = list(gradient) if type(gradient) is tuple else gradient
        return tuple(out)

    return run


def _operands(call: _Call, saved: list[Any], dys: dict[int, Any]) -> tuple[Any, ...]:
    """The operands of a call's gradient, as tensors of meta."""

    def filled(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([saved[x.index] if type(x) is _Saved else filled(x) if type(x) is tuple else x for x in values])

    return call.rule.operands(filled(call.args), filled(call.outs), dys, call.flows)


def _is_plain(tensors: tuple[Any, ...]) -> bool:
    """Whether nothing but meta's kernels would see a gradient's calls: no graph is recorded, traced or transformed."""
    return (
        not torch.is_grad_enabled()
        and all(type(x) in _PLAIN and (x.is_cpu or x.is_cuda) for x in tensors)
        and not torch._C._len_torch_dispatch_stack()
        and functorch.maybe_current_level() is None
        and not any(map(functorch.is_functorch_wrapped_tensor, tensors))
    )


def _by_arrays(call: _Call, needs: tuple[bool, ...], saved: Any, dys: dict[int, Any]) -> Any:
    """The gradients by meta's kernels. One that is an incoming gradient is returned as that tensor, and one that shares
    memory with another tensor is copied, as torch may keep it as `.grad`."""
    inputs = [*saved, *dys.values()]
    take = taker()
    arrays = [array_of(x) if x.is_cuda or x.is_neg() else take(x) for x in inputs]
    on_gpu = any(x.is_cuda for x in inputs)
    with GradMode(False), stream_of(inputs) if on_gpu else nullcontext():
        operands = _operands(call, arrays[: len(saved)], dict(zip(dys, arrays[len(saved) :], strict=True)))
        found = call.rule.eager(needs, *operands)
    memories = {x.data_ptr() for x in inputs}

    def convert(y: Any) -> Any:
        if y is None:
            return None
        if type(y) is tuple:
            return tuple(map(convert, y))
        for array, x in zip(arrays, inputs, strict=True):
            if array is y:
                return x
        x = tensor_of(y)
        if x.data_ptr() in memories:
            return x.clone()
        memories.add(x.data_ptr())
        return x

    return [convert(y) for y in found]


def call_of(
    op: Op, overload: TorchOverload, args: tuple[Any, ...], symbols: Symbols
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """A call as a function of its tensors, and the tensors, lists flattened."""
    args = overload.complete(args)
    values = [
        None if p.is_tensor else p.from_torch(value, symbols.dim)
        for p, value in zip(overload.parameters, args, strict=True)
    ]
    tensors = [p.is_tensor and value is not None for p, value in zip(overload.parameters, args, strict=True)]
    nests = [value for value, is_tensor in zip(args, tensors, strict=True) if is_tensor]
    function = function_of(op)

    def call(*xs: Any) -> Any:
        filled = iter(with_leaves(nests, xs))
        return function(*[next(filled) if t else value for value, t in zip(values, tensors, strict=True)])

    return call, list(leaves_of(nests))


def batched(op: Op, overload: TorchOverload, find: Find) -> Callable[..., Any]:
    """Torch's hook for vmap: the call by meta's batching rule, or one call after the other where it has none."""

    def run(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        symbols = Symbols()
        call, tensors = call_of(op, overload, args, symbols)
        axes = [axis for p, value, dims in zip(overload.parameters, args, in_dims, strict=False)
                if p.is_tensor and value is not None
                for axis in (dims if is_sequence(dims) else [dims] * len(list(leaves_of(value))))]  # fmt: skip
        axes += [None] * (len(tensors) - len(axes))
        with calling_torch(symbols, find):
            xs = [TorchTensor(x, symbols) for x in tensors]
            out = unwrapped(vmap(call, tuple(axes), randomness=info.randomness)(*xs))
        if overload.results == "Tensor":
            return out.clone() if op.view else out, 0
        if overload.results == "Tensor[]":
            return list(out), [0] * len(out)
        return tuple(out), (0,) * len(out)

    return run
