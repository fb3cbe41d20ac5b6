"""Operators that torch runs inside of a program: those that meta lacks, and all that draw random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

import meta
from meta.backend.functions import Specialised
from meta.dim import Dim, SymDim, evaluate, names
from meta.frontend.torch.dynamo.memory import is_constant, with_strides
from meta.frontend.torch.dynamo.shapes import NeedsSizes, Sizes, dense_order, inverse, is_dense
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, TupleType
from meta.op.dialect.torch import DIALECT
from meta.op.implementation import Implementation, ImplementationOptions
from meta.schema._dsl import TensorLike
from meta.tracing.foreign_op import emit_foreign_call

_distinct = count()


@dataclass(frozen=True, slots=True)
class _KernelInput:
    """The tensor at a position among the inputs of a kernel, as an argument."""

    index: int


@dataclass(frozen=True, slots=True)
class ArgumentLayout:
    """Where torch has the elements of an operand: contiguous in an order of its axes (None: as they are), or with
    strides, where it is not contiguous in any."""

    order: tuple[int, ...] | None
    strides: tuple[Dim, ...] | None = None


@dataclass(frozen=True, slots=True)
class ForeignResult:
    """A tensor that a function of torch returns. type: in the order of its axes in which it is contiguous there.
    order: that order, None for the tensor's own."""

    type: TensorType
    order: tuple[int, ...] | None = None


def foreign_result(fake: torch.Tensor, sizes: Sizes) -> ForeignResult:
    """A tensor that a function of torch returns, from torch's fake tensor for it."""
    order, kind = dense_order(fake) if is_dense(fake) else None, sizes.type(fake)
    return ForeignResult(kind if order is None else kind.with_shape(tuple(kind.shape[i] for i in order)), order)


def operand_layouts(node: Node, sizes: Sizes) -> list[ArgumentLayout]:
    """The layout of each tensor among the arguments of a node."""
    return [_operand_layout(fake, sizes) for fake in _operands(node)]


def known_strides(node: Node) -> list[tuple[int, ...]]:
    """The strides of each tensor among the arguments of a node; [] if some size is symbolic."""
    fakes = _operands(node)
    is_static = all(is_constant((*fake.shape, *fake.stride())) for fake in fakes)
    return [tuple(fake.stride()) for fake in fakes] if is_static else []


def _operand_layout(fake: torch.Tensor, sizes: Sizes) -> ArgumentLayout:
    if is_dense(fake):
        return ArgumentLayout(dense_order(fake))
    return ArgumentLayout(None, tuple(map(sizes.dim, fake.stride())))


def _operands(node: Node) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    fakes = [x.meta.get("val") for x in leaves if isinstance(x, Node)]
    return [fake for fake in fakes if isinstance(fake, torch.Tensor)]


def foreign_call(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    returned: Mapping[int, ForeignResult], token: Any = None, layouts: Sequence[ArgumentLayout] = (),
    strides: Sequence[tuple[int, ...]] = (),
) -> list[Any]:  # fmt: skip
    """Emit a call of a function of torch into the current trace; its tensors, then the next token if one is given.

    name: of the function, which decides what it computes.  args, kwargs: nests of symbols, sizes and plain values.
    returned: position among the leaves of what it returns -> the tensor there. Where it returns None in place of that
        tensor, as a mask of gradients may say, the values are not determined.
    token: a uint8[1] tensor, from the call that this one must follow: random operators draw in the order of the graph.
    layouts: of each tensor of the arguments, for operators that read memory: random ones draw in its order, and custom
        ones may do anything. Without them, tensors are compact, or parts of others with torch's strides.
    strides: of each tensor of the arguments in torch, where their sizes are known.
    Raises NeedsSizes where the sizes among the arguments cannot be read off its tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors: list[Any] = [x for x in leaves if isinstance(x, TensorLike)]
    positions = iter(range(len(tensors)))
    template = [_KernelInput(next(positions)) if isinstance(x, TensorLike) else x for x in leaves]
    results = [each.type for each in returned.values()]
    types: list[TensorType] = [*(x.type for x in tensors), *results]
    copied = {i: each.strides for i, each in enumerate(layouts) if each.strides is not None}
    sizes = _readers(types, [*template, *(n for each in copied.values() for n in each)])
    places = list(layouts) if any(map(_is_special, layouts)) else ""
    facts = f"{spec} {[_text(x) for x in template]} {places} {[(i, each.order) for i, each in returned.items()]}"
    orders = {i: each.order for i, each in enumerate(layouts) if each.order is not None}
    views = {i: inverse(order) for i, order in orders.items()}
    inputs = [meta.transpose(x, orders[i]) if i in views else x for i, x in enumerate(tensors)]
    if token is not None:
        inputs, results = [*inputs, token], [*results, token.type]
    kernel = _kernel(function, template, spec, len(tensors), len(inputs), sizes, views, copied, returned)
    options: ImplementationOptions = {"strided": partial(_are_as_in_torch, strides)} if strides and not layouts else {}
    implementation = Implementation(name, DIALECT, Specialised(lambda _: kernel), options)
    result_type = results[0] if len(results) == 1 else TupleType(tuple(results))
    out = emit_foreign_call(implementation, f"{name} of torch.", facts, inputs, result_type)
    emitted = [out] if len(results) == 1 else list(out)
    for i, each in enumerate(returned.values()):
        emitted[i] = emitted[i] if each.order is None else meta.transpose(emitted[i], inverse(each.order))
    return emitted


def _are_as_in_torch(strides: Sequence[tuple[int, ...]], call: CallInfo) -> bool:
    """Whether operands that are parts of others have torch's strides, for which its kernel is made."""
    pairs = [(each, own) for each, own in zip(call.layouts, strides, strict=False) if each is not None]
    return not any(call.layouts[len(strides) :]) and all(
        n == 1 or s == t for each, own in pairs for n, s, t in zip(each.shape, each.strides, own, strict=True)
    )


def _kernel(
    function: Callable[..., Any], template: Sequence[Any], spec: Any, used: int, inputs: int,
    sizes: dict[str, tuple[int, int]], views: dict[int, tuple[int, ...]], strides: dict[int, tuple[Dim, ...]],
    returned: Mapping[int, ForeignResult],
) -> Callable[..., None]:  # fmt: skip
    """A function on torch tensors, inputs then outputs. used: how many inputs are arguments.
    sizes: where the size of each name is: (position without the token, axis).  views: the inputs whose axes are put in
    another order first.  strides: of the inputs that get others.
    returned: the outputs, by their places among the leaves of what the function returns."""

    def run(*tensors: Any) -> None:
        outs = tensors[inputs:]
        operands = [x.permute(views[i]) if i in views else x for i, x in enumerate(tensors[:used])]
        typed = (*operands, *outs)
        values = {name: int(typed[i].shape[axis]) for name, (i, axis) in sizes.items()}
        for i, each in strides.items():
            operands[i] = with_strides(operands[i], [evaluate(n, values) for n in each])
        args, kwargs = pytree.tree_unflatten([_filled(x, operands, values) for x in template], spec)
        results = pytree.tree_leaves(function(*args, **kwargs))
        for out, (place, each) in zip(outs, returned.items(), strict=False):  # the token is the last of the outputs
            value = results[place]
            if isinstance(value, torch.Tensor):
                out.copy_(value if each.order is None else value.permute(each.order))

    return run


def _filled(x: Any, tensors: Sequence[Any], sizes: dict[str, int]) -> Any:
    if isinstance(x, _KernelInput):
        return tensors[x.index]
    return evaluate(x, sizes) if isinstance(x, SymDim) else x


def _readers(types: Sequence[TensorType], template: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """For each name of a size in the arguments, a tensor and an axis that has it."""
    size_names = {name for x in template if isinstance(x, SymDim) for name in names(x)}
    sources: dict[str, tuple[int, int]] = {}
    for i, kind in enumerate(types):
        for axis, dim in enumerate(kind.shape):
            if isinstance(dim, SymDim) and dim.name in size_names:
                sources.setdefault(str(dim.name), (i, axis))
    if size_names - sources.keys():
        raise NeedsSizes(f"no tensor of the call has the size {min(size_names - sources.keys())}")
    return sources


def _is_special(layout: ArgumentLayout) -> bool:
    return layout.order is not None or layout.strides is not None


def _text(x: Any) -> str:
    """A description of an argument; a graph equals only itself."""
    plain = isinstance(x, (_KernelInput, SymDim, bool, int, float, complex, str, type(None), torch.dtype, torch.device))
    plain = plain or isinstance(x, (torch.layout, torch.memory_format))
    return repr(x) if plain else f"{type(x).__name__} {next(_distinct)}"
