"""Operands of libraries that are parts of the memory of other tensors are read there, without a copy; and results that
are read with their axes in another order are written so.

    q = transpose(reshape(split(x)[0], s), axes)
    y = attention(q, k, v)                          =>     y = attention'(x, k, v)

The implementation that dispatch chooses says which strides it takes (`ImplementationOptions.strided`) and which orders
of axes it writes (`ordered`). The call becomes one of a `StridedOp`, which knows the layout of each operand and the
order of each result (`CallInfo.layouts`, `orders`), takes the tensors in whose memory the operands are, and returns the
results in these orders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate, zip_longest
from typing import Any, Final

from meta.ir.expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallInfo,
    Expr,
    FunctionExpr,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    is_atom,
)
from meta.ir.layout import StridedLayout
from meta.ir.type import TensorType, TupleType, flat_types
from meta.ir.visitor import reads
from meta.op.dispatch import first_accepting, implementation
from meta.op.grad.rule import ProgramOp
from meta.op.implementation import Implementation
from meta.op.registry import Op, get
from meta.passes.manager import function_pass
from meta.passes.rewriting import VIEWS
from meta.records import record
from meta.schema._dsl import Arg, Schema, Str, TensorList
from meta.tracing.foreign_op import ForeignOp
from meta.tree import leaves_of, with_leaves


@record(eq=False)
class StridedOp(ProgramOp):
    """An operator on parts of the memory of its operands, for one call of a program.

    function: of the operands: operators that move elements, then the call, the binding at `place`, then transposes of
        its results.
    layouts: of the operands of that call, None for those that are operands of this one.
    orders: of the axes of its results in the results of this one, None for a result as it is; () if all are."""

    function: FunctionExpr = field(kw_only=True)
    place: int = field(kw_only=True)
    layouts: tuple[StridedLayout | None, ...] = field(kw_only=True)
    orders: tuple[tuple[int, ...] | None, ...] = field(kw_only=True)

    @property
    def call(self) -> Call:
        """The call on parts."""
        call = self.function.body.bindings[self.place].value
        assert isinstance(call, Call)
        return call

    def by_dialect(self, dialect: str | None, name: str) -> FunctionExpr:
        """The function with another name, which names the dialect of the call."""
        bindings, body = list(self.function.body.bindings), self.function.body
        made = replace(self.call, dialect=dialect, attrs={}, span=None)
        bindings[self.place] = replace(bindings[self.place], value=made)
        return replace(self.function, body=replace(body, bindings=tuple(bindings)), name=name)


Layouts = tuple[StridedLayout | None, ...]
Orders = tuple[tuple[int, ...] | None, ...]
_MOVING: Final = ("transpose", "broadcast_to", "strided_slice", "split")
"""The operators whose results have layouts other than row-major."""


@function_pass("fold_views", *_MOVING)
def fold_views(function: FunctionExpr) -> FunctionExpr:
    """Calls of libraries that take strides read what transposes, slices, splits and broadcasts have moved where it was.
    An operand that something else reads as well is computed anyway, and stays. Results that only transposes by the same
    axes read are written so."""
    folder = _Folder(function)
    accepted = {b.var: places for b in function.body.bindings if any(places := folder.accepted(b))}
    if not accepted:
        return function
    bindings: list[Binding] = []
    for b in function.body.bindings:
        if b.var in accepted:
            bindings += folder.strided(b, *accepted[b.var])
        elif b.var not in folder.written:
            bindings.append(b)
    return replace(function, body=Block(folder.read(bindings, function.body.results), function.body.result))


def parts_of(function: FunctionExpr) -> Mapping[Any, TensorPart | tuple[TensorPart, ...]]:
    """The tensors, and lists of tensors, of a function that are parts of the memory of others."""
    return _Folder(function).parts


@record(eq=False)
class TensorPart:
    """A tensor as a part of the memory of another one. steps: the bindings that compute it from `source`."""

    source: Any
    layout: StridedLayout
    steps: tuple[Binding, ...] = ()


class _Folder:
    """What is known of a function. parts: of its tensors and lists of tensors, those that are parts.
    written: the results, and transposes of them, that a call writes in another order."""

    def __init__(self, function: FunctionExpr) -> None:
        self.parts: dict[Any, TensorPart | tuple[TensorPart, ...]] = {}
        self.readers: dict[Any, list[Expr | None]] = {}
        self.taken: dict[Any, list[Binding]] = {}
        self.written: set[Any] = set()
        for binding in function.body.bindings:
            for atom in reads(binding.value):
                self.readers.setdefault(atom, []).append(binding.value)
                self.taken.setdefault(atom, []).append(binding)
            self._enter(binding)
        for atom in function.body.results:
            self.readers.setdefault(atom, []).append(None)
        self.chosen: dict[int, Implementation | None] = {}

    def _enter(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, TupleGetItem):
            parts = self.parts.get(value.value)
            part = parts[value.index] if isinstance(parts, tuple) else None
            if part is not None:
                self.parts[binding.var] = replace(part, steps=(*part.steps, binding))
            return
        if not isinstance(value, Call) or value.callee is not None or value.op_name not in _STEPS:
            return
        source: Any = value.args[0]
        before = self.parts.get(source)
        if not all(t.is_static for t in flat_types((source.type, value.type))):
            return
        if not isinstance(before, TensorPart):
            before = TensorPart(source, StridedLayout.row_major(source.type.shape))
        after = _STEPS[value.op_name](before.layout, value)
        if after is None:  # a copy
            return
        steps = (*before.steps, binding)
        if isinstance(after, tuple):
            self.parts[binding.var] = tuple(TensorPart(before.source, layout, steps) for layout in after)
        else:
            self.parts[binding.var] = TensorPart(before.source, after, steps)

    def accepted(self, binding: Binding) -> tuple[Layouts, Orders]:
        """The layouts of the operands that a call takes where they are, and the orders in which it writes its results;
        () for none."""
        layouts = self._layouts(binding.value)
        return layouts, self._orders(binding, layouts)

    def _orders(self, binding: Binding, layouts: Layouts) -> Orders:
        call = binding.value
        if not isinstance(call, Call) or not isinstance(call.op, Op) or not isinstance(call.type, TupleType):
            return ()
        reads = self.taken.get(binding.var, [])
        if call.op.inplace or None in self.readers.get(binding.var, []) or not all(map(_is_item, reads)):
            return ()
        orders = [self._order(r.var) for r in reads]
        if not any(orders):
            return ()
        wanted = list[tuple[int, ...] | None]([None] * len(flat_types((call.type,))))
        for read, order in zip(reads, orders, strict=True):
            assert isinstance(read.value, TupleGetItem)
            wanted[read.value.index] = order
        chosen = self._chosen(call)
        takes = chosen.options.get("ordered") if chosen is not None else None
        return tuple(wanted) if takes is not None and takes(_info(call, layouts, tuple(wanted))) else ()

    def _order(self, x: Any) -> tuple[int, ...] | None:
        """The axes by which all that reads a tensor transposes it."""
        rank = x.type.ndim
        orders = {_axes(r, rank) if isinstance(r, Call) and r.op_name == "transpose" else None for r in self.readers[x]}
        return orders.pop() if len(orders) == 1 else None

    def _layouts(self, value: Expr) -> Layouts:
        """The layouts of the operands that a call takes where they are; () if it takes none so."""
        if not isinstance(value, Call) or not self._reads_strides(value):
            return ()
        tensors = _tensors(value)
        wanted = [self._layout(x) if self._is_only_folded(x) else None for x in tensors]
        if _takes(self._chosen(value), value, wanted):
            return tuple(wanted)
        taken: list[StridedLayout | None] = [None] * len(wanted)
        for i, layout in enumerate(wanted):
            tried = [*taken[:i], layout, *taken[i + 1 :]]
            if layout is not None and _takes(self._chosen(value), value, tried):
                taken = tried
        return tuple(taken) if any(taken) else ()

    def _layout(self, x: Any) -> StridedLayout | None:
        part = self.parts.get(x)
        return part.layout if isinstance(part, TensorPart) and not part.layout.is_row_major else None

    def _is_only_folded(self, x: Any) -> bool:
        """Whether all that reads a tensor takes strides."""
        return all(isinstance(r, Call) and self._reads_strides(r) for r in self.readers[x])

    def _reads_strides(self, call: Call) -> bool:
        """Whether the implementation of a call takes strides, of those operands that have any."""
        if not isinstance(call.op, Op) or call.op.inplace or all(self._layout(x) is None for x in _tensors(call)):
            return False
        chosen = self._chosen(call)
        return chosen is not None and chosen.options.get("strided") is not None

    def _chosen(self, call: Call) -> Implementation | None:
        if id(call) not in self.chosen:
            self.chosen[id(call)] = _implementation(call)
        return self.chosen[id(call)]

    def read(self, bindings: Sequence[Binding], results: Sequence[Atom]) -> tuple[Binding, ...]:
        """The bindings without the parts that nothing reads any more."""
        needed, kept = set[Any](results), list[Binding]()
        for binding in reversed(bindings):
            if binding.var in needed or binding.var not in self.parts:
                kept.append(binding)
                needed.update(reads(binding.value))
        return tuple(reversed(kept))

    def strided(self, binding: Binding, layouts: Layouts, orders: Orders) -> list[Binding]:
        """The call on the tensors that its operands are parts of, and its results that are read in another order."""
        call: Any = binding.value
        params: list[Var] = []
        bindings: list[Binding] = []
        sources: list[Any] = []
        operands: list[Any] = []
        for x, layout in zip_longest(_tensors(call), layouts):
            part = self.parts.get(x)
            source, steps = (x, ()) if layout is None or not isinstance(part, TensorPart) else (part.source, part.steps)
            params.append(Var(f"x{len(params)}", source.type))
            sources.append(source)
            names: dict[Any, Any] = {source: params[-1]}
            for step in steps:
                var = Var(step.var.name, step.var.type)
                bindings.append(Binding(var, _renamed(step.value, names)))
                names[step.var] = var
            operands.append(names[x])
        inner = _with_tensors(call, operands)
        y = Var("y", call.type)
        place = len(bindings)
        bindings.append(Binding(y, inner))
        result = _reordered(y, orders, bindings) if orders else y
        function = FunctionExpr(tuple(params), Block(tuple(bindings), result), {}, call.op.name, None)
        schema = Schema(call.op.name, Arg("xs", TensorList), Arg("facts", Str))
        kind, own = result.type, call.op
        op = StridedOp(
            own.name, own.family, schema, lambda *_: kind, own.doc, amp="keep", complex=own.complex, rule=None,
            function=function, place=place, layouts=layouts, orders=orders,
        )  # fmt: skip
        facts = repr((arg_types(inner.args), layouts, orders))
        made = replace(call, op=op, args=(tuple(sources), facts), type=kind)
        return self._read_in_order(binding.var, made, orders) if orders else [replace(binding, value=made)]

    def _read_in_order(self, before: Var, call: Call, orders: Orders) -> list[Binding]:
        """The bindings of a call and its results, those in other orders in place of the transposes that read them."""
        var = Var(before.name, call.type)
        made = [Binding(var, call)]
        for item in self.taken[before]:
            assert isinstance(item.value, TupleGetItem)
            read = replace(item.value, value=var)
            in_order = orders[item.value.index] is not None
            self.written.add(item.var)
            for binding in self.taken[item.var] if in_order else [item]:
                made.append(replace(binding, value=read))
                self.written.add(binding.var)
        return made


def _reordered(y: Var, orders: Orders, bindings: list[Binding]) -> Tuple:
    """The results of a call in their orders, from bindings that are added."""
    results: list[Var] = []
    for i, (kind, order) in enumerate(zip(flat_types((y.type,)), orders, strict=True)):
        bindings.append(Binding(Var(f"y{i}", kind), TupleGetItem(y, i)))
        if order is not None:
            moved = kind.with_shape(tuple(kind.shape[axis] for axis in order))
            bindings.append(Binding(Var(f"z{i}", moved), Call(get("transpose"), (bindings[-1].var, order), moved)))
        results.append(bindings[-1].var)
    return Tuple(tuple(results))


def _is_item(binding: Binding) -> bool:
    return isinstance(binding.value, TupleGetItem)


def _axes(transpose: Call, rank: int) -> tuple[int, ...]:
    axes = transpose.args[1]
    return tuple(range(rank))[::-1] if axes is None else tuple(axis % rank for axis in axes)


def _tensors(call: Call) -> list[Any]:
    return [leaf for leaf in leaves_of(call.args) if is_atom(leaf)]


def _with_tensors(call: Call, tensors: list[Any]) -> Call:
    rest = iter(tensors)
    return replace(call, args=with_leaves(call.args, [next(rest) if is_atom(x) else x for x in leaves_of(call.args)]))


def _renamed(value: Any, names: Mapping[Any, Any]) -> Any:
    if isinstance(value, TupleGetItem):
        return replace(value, value=names[value.value])
    return replace(value, args=(names[value.args[0]], *value.args[1:]))


def _implementation(call: Call) -> Implementation | None:
    """The implementation that runs a call of a program."""
    if isinstance(call.op, ForeignOp):
        return call.op.implementation
    assert isinstance(call.op, Op)
    return implementation(call.op, call.dialect) if call.dialect else first_accepting(_info(call), in_program=True)


def _info(call: Call, layouts: Layouts = (), orders: Orders = ()) -> CallInfo:
    assert isinstance(call.op, Op)
    return CallInfo(call.op, arg_types(call.args), call.type, flat_types((call.type,))[0].device, layouts, orders)


def _takes(chosen: Implementation | None, call: Call, layouts: list[StridedLayout | None]) -> bool:
    """Whether an implementation takes operands with these layouts; False without any."""
    assert chosen is not None
    takes = chosen.options.get("strided")
    info = _info(call, tuple(layouts))
    return takes is not None and any(layouts) and not info.complex_dtype() and takes(info)


# --- what operators that move elements make of a layout --------------------------------------------------------------


def _transposed(layout: StridedLayout, call: Call) -> StridedLayout:
    return layout.transposed(_axes(call, len(layout.shape)))


def _reshaped(layout: StridedLayout, call: Call) -> StridedLayout | None:
    assert isinstance(call.type, TensorType)
    return layout.reshaped(tuple(map(int, call.type.shape)))


def _broadcast(layout: StridedLayout, call: Call) -> StridedLayout:
    assert isinstance(call.type, TensorType)
    return layout.broadcast(tuple(map(int, call.type.shape)))


def _sliced(layout: StridedLayout, call: Call) -> StridedLayout | None:
    assert isinstance(call.type, TensorType)
    _, begin, end, strides = call.args
    for axis, (first, last) in enumerate(zip(begin, end, strict=True)):
        step = strides[axis] if strides else 1
        if step < 1:
            return None
        first, _, step = slice(first, last, step).indices(layout.shape[axis])
        layout = layout.sliced(axis, first, int(call.type.shape[axis]), step)
    return layout


def _split(layout: StridedLayout, call: Call) -> tuple[StridedLayout, ...]:
    assert isinstance(call.type, TupleType)
    axis = call.args[2] % len(layout.shape)
    sizes: list[Any] = [t.shape[axis] for t in flat_types((call.type,))]
    starts = [0, *accumulate(sizes)]
    return tuple(layout.sliced(axis, start, size) for start, size in zip(starts, sizes, strict=False))


_Step = Callable[[StridedLayout, Call], "StridedLayout | tuple[StridedLayout, ...] | None"]
_STEPS: Final[dict[str, _Step]] = {
    **dict.fromkeys((*VIEWS, "stop_gradient"), _reshaped),
    "transpose": _transposed,
    "broadcast_to": _broadcast,
    "strided_slice": _sliced,
    "split": _split,
}
