"""Operators whose calls on parts are more than one call: changes of shape, and reads along a sharded axis.

A function here gets the partitioner, the operator and the arguments of a call, with values in the place of tensors. It
returns the value of the call, or None where the general rules do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meta.dim import Dim, product
from meta.distributed.tensor.conversions import Conversions
from meta.distributed.tensor.placement import REPLICATED, Distributed, Partial, Sharded, Value, divides, part_type
from meta.dtype import is_float
from meta.ir.type import TensorType
from meta.op.registry import Op, get


def compute(p: Conversions, op: Op, args: tuple[Any, ...]) -> Value | None:
    """The value of a call by a function of this module; None if there is none, or it does not apply."""
    function = _SPECIAL.get(op.name)
    return None if function is None else function(p, *args)


# --- changes of shape ------------------------------------------------------------------------------------------------


def _reshape(p: Conversions, x: Distributed, shape: tuple[Dim, ...]) -> Value | None:
    placement = x.placement
    if not isinstance(placement, Sharded):
        return None
    kind: TensorType = get("reshape").infer((x.type, shape))  # type: ignore[assignment]
    new = _followed(x.type.shape, placement, kind.shape, p.ranks)
    if new is None:
        return None
    local = p.emit("reshape", x.atoms[placement], part_type(kind, new, p.ranks).shape)
    return Distributed(kind, new, local)


def _followed(shape: tuple[Dim, ...], placement: Sharded, new: tuple[Dim, ...], ranks: int) -> Sharded | None:
    """Where parts of a tensor are in one of another shape.

    A part consists of runs of elements; in front of the ranks' choice of a run there are `outer` of them, and these
    have to be axes, or blocks of the axis, of the new shape as well."""
    outer = product((*shape[: placement.axis], placement.blocks))
    for axis in reversed(range(len(new))):
        before = product(new[:axis])
        blocks = outer // before if before != 0 else 0
        if not isinstance(blocks, int) or blocks * before != outer:
            continue
        sharded = Sharded(axis, blocks)
        if divides(new[axis], sharded, ranks):
            return sharded
    return None


def _concatenate(p: Conversions, xs: tuple[Distributed, ...], axis: int) -> Value | None:
    """Equal parts of equal tensors one after the other are blocks."""
    axis %= xs[0].type.ndim
    first = xs[0].placement
    same = all(x.placement == first and x.type.shape == xs[0].type.shape for x in xs)
    if not same or not isinstance(first, Sharded) or first.axis != axis:
        return None
    local = p.emit("concatenate", [x.atoms[first] for x in xs], axis)
    kind = xs[0].type.with_size(axis, xs[0].type.shape[axis] * len(xs))
    return Distributed(kind, Sharded(axis, first.blocks * len(xs)), local)


def _split(p: Conversions, x: Distributed, sections: Any, axis: int) -> Value | None:
    """Blocks apart."""
    axis %= x.type.ndim
    placement, size = x.placement, x.type.shape[axis]
    if not isinstance(placement, Sharded) or placement.axis != axis:
        return None
    count: int = sections if isinstance(sections, int) else len(sections) + 1
    equal = isinstance(sections, int) or sections == tuple(int(size) // count * i for i in range(1, count))
    if not equal or placement.blocks % count:
        return None
    parts = p.emit("split", x.atoms[placement], count, axis)
    kind = x.type.with_size(axis, size // count)
    each = Sharded(axis, placement.blocks // count)
    return tuple(Distributed(kind, each, p.builder.get_item(parts, i)) for i in range(count))


def _dense(p: Conversions, x: Distributed, w: Distributed, bias: Distributed | None) -> Value | None:
    """A bias is added once, to the sum of the ranks' products."""
    axes = [getattr(value.placement, "axis", None) for value in (x, w)]
    if bias is None or (axes[0] != x.type.ndim - 1 and axes[1] != 1):
        return None
    return p.compute("add", p.compute("dense", x, w, None), bias)


# --- positions along a divided axis ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Positions along an axis that is divided among the ranks.

    place: positions in the rank's part, 0 for those in other parts and -1 for those outside of the axis, which the
        operator treats as such.  elsewhere: which positions are in other parts."""

    place: Any
    elsewhere: Any

    def masked(self, p: Conversions, x: Any) -> Any:
        """Elements read at these positions, with zeros for other parts."""
        new = tuple(range(self.elsewhere.type.ndim, x.type.ndim))
        elsewhere = p.emit("expand_dims", self.elsewhere, new) if new else self.elsewhere
        return p.emit("where", elsewhere, 0, x)


def _lookup(p: Conversions, indices: Distributed, count: int, blocks: int = 1) -> _Lookup:
    """count: the size of the whole axis, which is divided in blocks."""
    size = count // (blocks * p.ranks)
    place = p.emit("cast", p.whole(indices), "int64")
    block = p.emit("floor_divide", place, size * p.ranks) if blocks > 1 else None
    inside = place if block is None else p.emit("subtract", place, p.emit("multiply", block, size * p.ranks))
    own = p.emit("subtract", inside, p.emit("multiply", p.rank(indices.type), size))
    valid = p.emit("logical_and", p.emit("greater_equal", place, 0), p.emit("less", place, count))
    is_local = p.emit("logical_and", p.emit("greater_equal", own, 0), p.emit("less", own, size))
    elsewhere = p.emit("logical_and", valid, p.emit("logical_not", is_local))
    own = own if block is None else p.emit("add", own, p.emit("multiply", block, size))
    return _Lookup(p.emit("where", elsewhere, 0, p.emit("where", valid, own, -1)), elsewhere)


def _gather(p: Conversions, x: Distributed, axis: int, indices: Distributed) -> Value | None:
    """Each rank reads the elements that it has; positions outside of the axis give NaN on every rank."""
    placement = x.placement
    if not isinstance(placement, Sharded) or placement.axis != axis % x.type.ndim or not is_float(x.type.dtype):
        return None
    lookup = _lookup(p, indices, int(x.type.shape[placement.axis]), placement.blocks)
    read = p.emit("gather", x.atoms[placement], axis, lookup.place)
    return Distributed(x.type.with_shape(indices.type.shape), Partial("sum"), lookup.masked(p, read))


def _embedding(p: Conversions, table: Distributed, indices: Distributed) -> Value | None:
    """Each rank looks up the rows that it has."""
    if table.placement != Sharded(0):
        return None
    lookup = _lookup(p, indices, int(table.type.shape[0]))
    rows = p.emit("embedding", table.atoms[table.placement], lookup.place)
    kind = table.type.with_shape((*indices.type.shape, *table.type.shape[1:]))
    return Distributed(kind, Partial("sum"), lookup.masked(p, rows))


def _embedding_dx(p: Conversions, dy: Distributed, indices: Distributed, rows: int) -> Value | None:
    """The whole gradient, or, where a part is needed, the gradient of the rank's rows."""
    if isinstance(dy.placement, Sharded) or rows % p.ranks:
        return None
    result = p.as_written(get("embedding_dx"), (dy, indices, rows), REPLICATED, None)
    assert isinstance(result, Distributed)

    def own_rows() -> Any:
        lookup = _lookup(p, indices, rows)
        return p.emit("embedding_dx", lookup.masked(p, p.whole(dy)), lookup.place, rows // p.ranks)

    result.makers[Sharded(0)] = own_rows
    return result


_SPECIAL: Mapping[str, Callable[..., Value | None]] = {
    "reshape": _reshape, "concatenate": _concatenate, "split": _split, "dense": _dense,
    "embedding": _embedding, "embedding_dx": _embedding_dx, "gather": _gather,
}  # fmt: skip
