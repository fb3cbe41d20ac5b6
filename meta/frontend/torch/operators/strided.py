"""Calls whose operands are parts of other memory, such as transposed matrices and heads of attention.

The implementation that dispatch chooses says which strides it reads (`ImplementationOptions.strided`); it gets the
memory and the layouts. Operands that it does not read so are copied, and inductor gives other operators row-major
operands, which the kernel before them writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from meta.eager.call import CACHE_LIMIT, state
from meta.eager.runners import build_runner
from meta.frontend.torch.operators.schemas import TorchOverload
from meta.frontend.torch.operators.sizes import Symbols
from meta.ir.expr import CallInfo
from meta.ir.layout import StridedLayout
from meta.ir.type import flat_types
from meta.modes import scopes
from meta.op.dispatch import first_accepting, implementations
from meta.op.registry import Op
from meta.tree import is_sequence

Kernel = Callable[..., Any]
Layouts = tuple[StridedLayout | None, ...]


def reads_strides(op: Op) -> bool:
    """Whether an implementation reads operands that are not row-major."""
    return any("strided" in each.options for each in implementations(op))


def layout_tag(op: Op) -> torch.Tag:
    """What a compiler has to keep of an operand's strides."""
    return torch.Tag.needs_exact_strides if reads_strides(op) else torch.Tag.needs_contiguous_strides


def on_strides(op: Op, overload: TorchOverload, copying: Kernel, take: Kernel, convert: Kernel) -> Kernel:
    """`copying`, a kernel that copies strided operands, or one that has them read where they are.

    take: a compact tensor as an array.  convert: results of meta as torch's."""
    if not reads_strides(op) or any(p.is_list for p in overload.parameters):
        return copying
    positions = [i for i, p in enumerate(overload.parameters) if p.is_tensor]
    runners: dict[Any, tuple[Kernel, Layouts] | None] = {}
    op_state = state(op)

    def run(*args: Any) -> Any:
        tensors = [args[i] for i in positions if i < len(args) and args[i] is not None]
        if scopes.active or all(x.is_contiguous() for x in tensors):
            return copying(*args)
        shapes = [(x.dtype, x.shape, x.stride(), x.layout, x.device, x.is_neg() or x.is_conj()) for x in tensors]
        others = [torch.Tensor if isinstance(x, torch.Tensor) else tuple(x) if is_sequence(x) else x for x in args]
        key = (op_state.revision, *shapes, *others)
        found = runners.get(key, ())
        if found == ():
            if len(runners) >= CACHE_LIMIT:
                runners.clear()
            found = runners[key] = _runner(op, overload, args, tensors)
        if found is None:
            return copying(*args)
        runner, layouts = cast("tuple[Kernel, Layouts]", found)
        memory = iter([take(x if each is None else _memory(x, each)) for x, each in zip(tensors, layouts, strict=True)])
        absent = len(args)
        return convert(runner(*[None if i >= absent or args[i] is None else next(memory) for i in positions]))

    return run


def _runner(op: Op, overload: TorchOverload, args: Any, tensors: list[torch.Tensor]) -> tuple[Kernel, Layouts] | None:
    """The runner of a call and the layouts of its operands; None if no operand is read where it is."""
    if any(x.layout is not torch.strided or x.is_neg() or x.is_conj() or x.is_complex() or not x.numel()
           for x in tensors):  # fmt: skip
        return None
    symbols = Symbols()
    types = overload.types(op.name, overload.complete(tuple(args)), symbols.type, symbols.dim)
    out = op.infer(types)
    device = flat_types((out,))[0].device
    chosen = first_accepting(CallInfo(op, types, out, device))
    reads = None if chosen is None else chosen.options.get("strided")
    if reads is None:
        return None
    taken: list[StridedLayout | None] = [None] * len(tensors)
    for i, x in enumerate(tensors):
        if not x.is_contiguous():
            taken[i] = _layout(x)
            if not reads(CallInfo(op, types, out, device, tuple(taken))):
                taken[i] = None
    layouts = tuple(taken)
    return (build_runner(CallInfo(op, types, out, device, layouts)), layouts) if any(layouts) else None


def _layout(x: torch.Tensor) -> StridedLayout:
    """Where the elements are in the memory that `_memory` gives: a permutation of its axes, if they fill it."""
    axes = sorted(range(x.ndim), key=lambda i: (-x.stride(i), i))
    if x.permute(axes).is_contiguous():
        order = StridedLayout.row_major(tuple(x.shape[a] for a in axes))
        return order.transposed(tuple(axes.index(i) for i in range(x.ndim)))
    extent = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return StridedLayout((extent,), tuple(x.shape), x.stride())


def _memory(x: torch.Tensor, layout: StridedLayout) -> torch.Tensor:
    """The memory from the first element of a tensor to its last, as a compact tensor."""
    return x.detach().as_strided(layout.source, StridedLayout.row_major(layout.source).strides)
