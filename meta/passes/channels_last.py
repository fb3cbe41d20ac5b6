"""Channels last through whole programs: images as (batch, *spatial, channels) between convolutions.

    y = conv2d(x, w); z = relu(y); u = conv2d(z, v)

becomes, where the library that runs the convolutions computes with channels last and would convert each operand,

    y = conv2d(transpose(x), transpose(w), channels_last=True); z = relu(y)
    u = transpose(conv2d(z, transpose(v), channels_last=True))

Dialects say which of their calls run faster so (`Implementation.prefers_channels_last`). Pooling follows its operands,
as do operators whose declared axes may come in any order; a tensor is transposed where another operator takes it. The
program stays as it was unless all transposes move fewer bytes than the conversions that the library no longer makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from meta._generated import limits
from meta.ir.builder import Builder, Module
from meta.ir.expr import (
    Atom,
    Binding,
    Call,
    CallInfo,
    Constant,
    Expr,
    FunctionExpr,
    Tuple,
    TupleGetItem,
    Var,
    is_atom,
    is_atom_list,
)
from meta.ir.printer import to_array
from meta.ir.type import TensorType, TupleType
from meta.ir.visitor import reads, substituted
from meta.op.axes import TypedCall, is_elementwise, reordered, with_attributes
from meta.op.dispatch import first_accepting
from meta.op.registry import Op, get
from meta.op.windows import channels_moved
from meta.passes.manager import Pass
from meta.passes.pools import arguments_of, indices_of, windows_of
from meta.records import record
from meta.tree import leaves_of, with_leaves


def _channels_last(module: Module) -> Module:
    """Bring convolutions of "main" that run faster so, and the operators between them, to channels last, if that moves
    fewer bytes than the conversions by libraries. Parameters and results keep their layout."""
    converter = _LayoutConverter(module.main)
    new = converter.function()
    return module.with_function("main", new) if converter.saved > converter.spent else module


def _to_last(ndim: int) -> tuple[int, ...]:
    """The axes of the transpose that moves channels from the second axis to the last."""
    return (0, *range(2, ndim), 1)


def _to_second(ndim: int) -> tuple[int, ...]:
    """The axes of the inverse of that transpose."""
    return (0, ndim - 1, *range(1, ndim - 1))


@record
class _New:
    """What replaces a value. last: whether its channels are last; in a tuple, whether the channels of `fields` are."""

    value: Expr | Var
    last: bool = True
    fields: tuple[int, ...] = ()


class _LayoutConverter:
    """One traversal of a function.

    last: variables whose channels are last now, and what holds them.  tuples: the same of tuples, with the positions of
    such tensors.  before, after: transposes made so far, back and forth.
    planes: tensors as pools take them.  indices: the indices of max pools that have been converted.
    saved: bytes that libraries need not convert.  spent: bytes that transposes move."""

    def __init__(self, function: FunctionExpr) -> None:
        self.old = function
        self.builder = Builder(caller_spans=False)
        self.last: dict[Atom, Var] = {}
        self.tuples: dict[Atom, tuple[Var, tuple[int, ...]]] = {}
        self.before: dict[Atom, Atom] = {}
        self.after: dict[Atom, Atom] = {}
        self.planes: dict[Atom, Atom] = {}
        self.indices: set[Atom] = set()
        self.saved = 0
        self.spent = 0

    def function(self) -> FunctionExpr:
        with self.builder.block() as scope:
            for binding in self.old.body.bindings:
                self.builder.span = binding.span
                self.binding(binding)
            result = self.old.body.result
            values = tuple(map(self.as_before, self.old.body.results))
            scope.ret(replace(result, fields=values) if isinstance(result, Tuple) else values[0])
        return replace(self.old, body=scope.block)

    def binding(self, binding: Binding) -> None:
        value, var = binding.value, binding.var
        new = _field(self, value) if isinstance(value, TupleGetItem) else None
        if isinstance(value, Call) and isinstance(value.op, Op) and not value.attrs and value.dialect is None:
            new = _RULES.get(value.op.name, _follow)(self, value)
        if new is None:
            atoms = {a: self.as_before(a) for a in reads(value) if isinstance(a, Var)}
            self.builder.bind(Binding(var, substituted(value, atoms)))
        elif isinstance(new.value, Var):
            (self.last if new.last else self.before)[var] = new.value
        elif not new.last:
            self.builder.bind(Binding(var, new.value))
        elif new.fields:
            self.tuples[var] = (self.builder.emit(new.value, var.name), new.fields)
        else:
            self.last[var] = self.builder.emit(new.value, var.name)

    def as_before(self, atom: Any) -> Any:
        """A value in the layout of the program; attribute values as they are."""
        if atom in self.tuples and atom not in self.before:
            new, positions = self.tuples[atom]
            values = [self.builder.get_item(new, i) for i in range(len(atom.type.fields))]
            moved = (self.moved(v, _to_second) if i in positions else v for i, v in enumerate(values))
            self.before[atom] = self.builder.tuple(moved)
        if atom in self.last and atom not in self.before:
            self.before[atom] = self.moved(self.last[atom], _to_second)
        return self.before.get(atom, atom)

    def as_last(self, atom: Any) -> Atom:
        """A tensor with channels last."""
        if atom in self.last:
            return self.last[atom]
        if atom not in self.after:
            self.after[atom] = self.moved(self.as_before(atom), _to_last)
        return self.after[atom]

    def in_order(self, atom: Any, kind: TensorType, ndim: int) -> Atom:
        """An operand of type `kind`, which may have further axes, in the layout of tensors with `ndim` axes."""
        if kind.ndim != ndim:
            return self.as_before(atom)
        if kind is atom.type:
            return self.as_last(atom)
        return self.moved(self.builder.emit(self.call("reshape", self.as_before(atom), kind.shape)), _to_last)

    def moved(self, atom: Atom, order: Callable[[int], tuple[int, ...]]) -> Atom:
        """A transposed tensor: a constant of a constant, and a view where only axes of size 1 move."""
        if isinstance(atom, Constant):
            axes = order(atom.type.ndim)
            value = np.ascontiguousarray(np.transpose(to_array(atom.value), axes))
            return Constant(value, atom.type.with_shape(tuple(atom.type.shape[a] for a in axes)), atom.span)
        return self.builder.emit(self.moved_expr(atom, order))

    def moved_expr(self, atom: Atom, order: Callable[[int], tuple[int, ...]]) -> Call:
        kind = atom.type
        assert isinstance(kind, TensorType)
        axes = order(kind.ndim)
        if _is_view(kind.shape, axes):
            return self.call("reshape", atom, tuple(kind.shape[a] for a in axes))
        self.spent += 2 * _bytes(kind) + limits.TRANSPOSE_CALL_BYTES
        return self.call("transpose", atom, axes)

    def call(self, name: str, *args: Any) -> Call:
        op = get(name)
        return self.builder.call_expr(op, op.schema.bind(name, args, {}))

    def changed(self, call: Call, **arguments: Any) -> Call:
        """The call with other arguments, and the rest in the layout of the program."""
        assert isinstance(call.op, Op)
        old = zip(call.op.schema.names, call.args, strict=True)
        return self.builder.call_expr(call.op, [arguments[n] if n in arguments else self.as_before(a) for n, a in old])


def _is_view(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Whether a transpose leaves the elements in their order, because only axes of size 1 move."""
    long_axes = [a for a in axes if shape[a] != 1]
    return all(a < b for a, b in pairwise(long_axes))


def _bytes(kind: Any) -> int:
    """The bytes of a tensor of static shape; 0 for others, which no call prefers."""
    return kind.nbytes if isinstance(kind, TensorType) and isinstance(kind.nbytes, int) else 0


# --- rules: a call of the program -> what takes its place, None if it stays ------------------------------------------

_Rule = Callable[[_LayoutConverter, Call], "_New | None"]


def _convolution(to: _LayoutConverter, call: Call) -> _New | None:
    args = arguments_of(call)
    if args["channels_last"] or not _prefers(call, args):
        return None
    tensors = {name: value for name, value in args.items() if is_atom(value)}
    to.saved += 2 * sum(map(_bytes, (*(t.type for t in tensors.values()), call.type)))
    shape = {"shape": _with_channels_last("shape", args["shape"])} if "shape" in args else {}
    moved = {name: to.as_last(value) for name, value in tensors.items()}
    new = to.changed(call, **moved, **shape, channels_last=True)
    if not call.op_name.endswith("_dw"):
        return _New(new)
    # The update of a kernel is elementwise, on parameters in the layout of the program.
    return _New(to.moved_expr(to.builder.emit(new), _to_second), last=False)


def _bytes_convolution(to: _LayoutConverter, call: Call) -> _New | None:
    """A convolution of bytes. In another layout its kernel transposes both sides, and elementwise operators behind it
    read and write the sums once more."""
    args = arguments_of(call)
    if args["channels_last"]:
        return None
    to.saved += 4 * (_bytes(args["x"].type) + _bytes(call.type)) + 2 * limits.TRANSPOSE_CALL_BYTES
    return _New(to.changed(call, x=to.as_last(args["x"]), channels_last=True))


def _prefers(call: Call, args: dict[str, Any]) -> bool:
    """Whether the dialect that would run the call with channels last runs it faster so."""
    assert isinstance(call.op, Op)
    new = tuple(True if n == "channels_last" else _with_channels_last(n, v) for n, v in args.items())
    info = CallInfo(call.op, new, _with_channels_last("", call), call.type.device)  # type: ignore[union-attr]
    if not all(t.is_static for t in (*info.tensors(), *info.outputs())):
        return False
    implementation = first_accepting(info, in_program=True)
    return implementation is not None and implementation.prefers_channels_last(info)


def _with_channels_last(name: str, value: Any) -> Any:
    """An argument of a convolution as a type, with channels last."""
    if name == "shape":
        return channels_moved(value, True)
    kind = getattr(value, "type", None)
    return kind.with_shape(channels_moved(kind.shape, True)) if isinstance(kind, TensorType) else value


def _follow(to: _LayoutConverter, call: Call) -> _New | None:
    """An operator with some operand whose channels are last, or a list of them, that does not depend on the order of
    axes, as its labels tell."""
    op = call.op
    assert isinstance(op, Op)
    atoms: list[Any] = [a for a in leaves_of(call.args) if is_atom(a)]
    ranks: set[int] = {a.type.ndim for a in atoms if a in to.last}
    lists = filter(is_atom_list, call.args)
    if len(ranks) != 1 or any(a not in to.last for each in lists for a in each):
        return None
    (ndim,) = ranks
    if any(call.args[op.schema.index[name]].type.ndim == ndim for name in op.inplace.values()):
        return None
    kinds = [_aligned(a.type, ndim) if is_elementwise(op) else a.type for a in atoms]
    types = with_leaves(call.args, _replaced(call.args, kinds))
    new = reordered(TypedCall.of(op, types), _to_last(ndim))
    if new is None:
        return None
    attributes, moved = new
    operands = [to.in_order(a, kind, ndim) for a, kind in zip(atoms, kinds, strict=True)]
    args = with_attributes(op, with_leaves(call.args, _replaced(call.args, operands)), attributes)
    fields = tuple(i for i, is_moved in enumerate(moved) if is_moved) if isinstance(call.type, TupleType) else ()
    return _New(to.builder.call_expr(op, args), any(moved), fields)


def _replaced(args: Any, operands: Sequence[Any]) -> list[Any]:
    """The leaves of arguments with other tensors."""
    new = iter(operands)
    return [next(new) if is_atom(x) else x for x in leaves_of(args)]


def _aligned(kind: TensorType, ndim: int) -> TensorType:
    """The type of an operand that broadcasts, with all axes."""
    return kind.with_shape((*(1,) * (ndim - kind.ndim), *kind.shape)) if kind.ndim else kind


def _transpose(to: _LayoutConverter, call: Call) -> _New | None:
    """A transpose that moves channels to the second axis, or back to the last, which is often not needed then."""
    x, axes = call.args
    ndim: int = x.type.ndim
    axes = tuple(a % ndim for a in axes or ())
    is_back = x in to.last and axes == _to_last(ndim)
    if not isinstance(x, Var) or ndim < 3 or not (is_back or (x not in to.last and axes == _to_second(ndim))):
        return None
    to.saved += 2 * _bytes(call.type) + limits.TRANSPOSE_CALL_BYTES
    return _New(to.last[x], last=False) if is_back else _New(to.as_before(x))


def _pool(to: _LayoutConverter, call: Call) -> _New | None:
    """A pool or its gradient. Indices of maxima depend on the layout, so that only gradients may take them; a max pool
    without indices follows one with them, for the two become one."""
    args = arguments_of(call)
    is_gradient, has_indices = "dy" in args, call.op_name.endswith("_with_indices")
    x = args["dy"] if is_gradient else args["x"]
    if x not in to.last if "indices" not in args else args["indices"] not in to.indices:
        return None
    if call.op_name.startswith("max") and not is_gradient:
        calls = [b.value for b in to.old.body.bindings if isinstance(b.value, Call) and b.value.args == call.args]
        twins = [call] if has_indices else [c for c in calls if c.op_name == f"{call.op_name}_with_indices"]
        found = [indices for c in twins if (indices := indices_of(to.old, c)) is not None and (indices or has_indices)]
        if not found:
            return None
        to.indices.update(*found)
    rank = x.type.ndim - 2
    tensors = [_plane(to, x), *([to.last[args["indices"]]] if "indices" in args else [])]
    batch, channels, *spatial = args.get("shape", (0, 0))
    shape = [(batch, 1, *spatial, channels)] if is_gradient else []
    include = [args["count_include_pad"]] if "count_include_pad" in args else []
    name = call.op_name.replace(f"{rank}d", f"{rank + 1}d")
    pooled = to.builder.emit(to.call(name, *tensors, *shape, *windows_of(args, rank), *include))
    if not has_indices:
        return _New(_without_plane(to, pooled))
    y = to.builder.emit(_without_plane(to, to.builder.get_item(pooled, 0)))
    return _New(Tuple((y, to.builder.get_item(pooled, 1)), call.span), fields=(0, 1))


def _plane(to: _LayoutConverter, atom: Atom) -> Atom:
    """A tensor with channels last as (batch, 1, *spatial, channels)."""
    if atom not in to.planes:
        last = to.as_last(atom)
        batch, *rest = last.type.shape  # type: ignore[union-attr]
        to.planes[atom] = to.builder.emit(to.call("reshape", last, (batch, 1, *rest)))
    return to.planes[atom]


def _without_plane(to: _LayoutConverter, atom: Atom) -> Call:
    batch, _, *rest = atom.type.shape  # type: ignore[union-attr]
    return to.call("reshape", atom, (batch, *rest))


def _field(to: _LayoutConverter, value: TupleGetItem) -> _New | None:
    if value.value not in to.tuples:
        return None
    new, positions = to.tuples[value.value]
    return _New(replace(value, value=new), last=value.index in positions)


_CONVOLUTIONS: Final = tuple(f"conv{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_dx", "_dw"))
_POOLS: Final = tuple(
    f"{kind}_pool{rank}d{suffix}"
    for rank in (1, 2)
    for kind, suffixes in (("max", ("", "_with_indices", "_dx")), ("avg", ("", "_dx")))
    for suffix in suffixes
)
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "conv2d_int8": _bytes_convolution,
    "transpose": _transpose,
    **dict.fromkeys(_POOLS, _pool),
}

# Other operators have results with channels last only if operands have.
channels_last = Pass(
    "channels_last", _channels_last, _channels_last.__doc__ or "", (*_CONVOLUTIONS, "conv2d_int8", "transpose")
)
