"""The values of a program that is being divided, and the collectives that move them between placements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeGuard

from meta.distributed.mesh import Group
from meta.distributed.tensor.placement import (
    LOCAL,
    REPLICATED,
    Distributed,
    Partial,
    Placement,
    Replicated,
    Sharded,
    Value,
    part_type,
)
from meta.ir.builder import Builder
from meta.ir.expr import ATOMS, Atom, Call, is_atom_list
from meta.ir.type import TensorType, TupleType
from meta.op.registry import Op, get


class Conversions(ABC):
    """The values so far, the builder of the new program, and the calls that it gets."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ranks = group.ranks
        self.builder = Builder(caller_spans=False)
        self.env: dict[Any, Value] = {}
        self.rank_atoms: dict[Any, Any] = {}
        self.gathers = self.reduced = 0
        """How many values were gathered from their parts so far, and how many elements were reduced."""

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, atom: Atom, placement: Placement) -> Value:
        """A value that an atom holds; of a tuple, one of each field."""
        kind: Any = atom.type
        if isinstance(kind, TupleType):
            fields = [self.builder.get_item(atom, i) for i in range(len(kind.fields))] if kind.fields else []
            return tuple(self.value(field, placement) for field in fields)
        return Distributed(kind, placement, atom)

    def operand(self, atom: Atom) -> Value:
        if atom not in self.env:  # constants and functions of the module
            self.env[atom] = Distributed(atom.type, REPLICATED, atom)  # type: ignore[arg-type]
        return self.env[atom]

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with values in the place of atoms."""
        return tuple(
            self.operand(a) if isinstance(a, ATOMS) else tuple(map(self.operand, a)) if is_atom_list(a) else a
            for a in args
        )

    def is_local(self, value: Value) -> bool:
        return any(map(self.is_local, value)) if isinstance(value, tuple) else value.placement == LOCAL

    def whole(self, value: Value) -> Any:
        """An atom of the value's type in the program."""
        if isinstance(value, tuple):
            return self.builder.tuple([self.whole(field) for field in value])
        return self.placed(value, LOCAL if value.placement == LOCAL else REPLICATED)

    def placed(self, value: Distributed, placement: Placement) -> Any:
        """An atom that holds a value in a placement."""
        if placement not in value.atoms:
            maker = value.makers.get(placement)
            value.atoms[placement] = self.converted(value, placement) if maker is None else maker()
        return value.atoms[placement]

    def converted(self, value: Distributed, placement: Placement) -> Any:
        """A collective that moves a value to a placement, or the slice of a replicated one."""
        own = value.placement
        if isinstance(placement, Replicated):
            if isinstance(own, Sharded):
                return self.gathered(value.atoms[own], own, value.type)
            assert isinstance(own, Partial)
            self.reduced += value.type.size if isinstance(value.type.size, int) else 0
            return self.emit("all_reduce", value.atoms[own], own.reduction, *self.group)
        assert isinstance(placement, Sharded)
        scatters = placement.blocks == 1 and REPLICATED not in value.atoms
        if isinstance(own, Partial) and own.reduction in ("sum", "mean") and scatters:
            return self.emit("reduce_scatter", value.atoms[own], placement.axis, own.reduction, *self.group)
        return self.sliced(self.placed(value, REPLICATED), placement)

    def gathered(self, part: Any, placement: Sharded, kind: TensorType) -> Any:
        axis, blocks = placement.axis, placement.blocks
        self.gathers += 1
        if blocks == 1:
            return self.emit("all_gather", part, axis, *self.group)
        shape = part.type.shape
        split = self.emit("reshape", part, (*shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :]))
        return self.emit("reshape", self.emit("all_gather", split, axis + 1, *self.group), kind.shape)

    def sliced(self, whole: Any, placement: Sharded) -> Any:
        """This rank's part of a replicated tensor."""
        axis, blocks = placement.axis, placement.blocks
        kind: TensorType = whole.type
        outer = () if blocks == 1 else (blocks,)
        size = kind.shape[axis] // (blocks * self.ranks)
        parts = self.emit("reshape", whole, (*kind.shape[:axis], *outer, self.ranks, size, *kind.shape[axis + 1 :]))
        own = self.emit("take", parts, self.rank(kind), axis + len(outer), mode="clip")
        return own if blocks == 1 else self.emit("reshape", own, part_type(kind, placement, self.ranks).shape)

    def rank(self, kind: TensorType) -> Any:
        """The number of this rank, on the device of a tensor."""
        if kind.device not in self.rank_atoms:
            self.rank_atoms[kind.device] = self.emit("group_rank", *self.group, device=kind.device)
        return self.rank_atoms[kind.device]

    # --- calls -------------------------------------------------------------------------------------------------------

    def emit(self, name: str, *args: Any, **options: Any) -> Any:
        """Call an operator on atoms."""
        op = get(name)
        return self.builder.call(op, op.schema.bind(name, args, options))

    def compute(self, name: str, *args: Any, **options: Any) -> Any:
        """Call an operator on values, as the program would."""
        op = get(name)
        return self.call(op, op.schema.bind(name, args, options))

    @abstractmethod
    def call(self, op: Op, args: tuple[Any, ...], source: Call | None = None) -> Value:
        """The value of a call in the program. source: the call there."""

    def as_written(self, op: Op, args: tuple[Any, ...], placement: Placement, source: Call | None) -> Value:
        """The call with whole operands."""
        return self.value(self.builder.emit(self.expression(op, args, self.whole, source)), placement)

    def expression(
        self, op: Op, args: tuple[Any, ...], atom_of: Callable[[Distributed], Any], source: Call | None
    ) -> Call:
        call = self.builder.call_expr(op, replaced(args, atom_of))
        return call if source is None else replace(call, attrs=source.attrs, dialect=source.dialect)


def values_of(args: tuple[Any, ...]) -> Iterator[Distributed]:
    """The values among arguments, in order."""
    for arg in args:
        if isinstance(arg, Distributed):
            yield arg
        elif _is_list(arg):
            yield from arg


def _is_list(arg: Any) -> TypeGuard[tuple[Distributed, ...]]:
    return isinstance(arg, tuple) and len(arg) > 0 and isinstance(arg[0], Distributed)  # pyright: ignore[reportUnknownArgumentType]


def replaced(args: tuple[Any, ...], function: Callable[[Distributed], Any]) -> tuple[Any, ...]:
    """Arguments with something else in the place of values."""

    def new(arg: Any) -> Any:
        if isinstance(arg, Distributed):
            return function(arg)
        return tuple(map(function, arg)) if _is_list(arg) else arg

    return tuple(map(new, args))
