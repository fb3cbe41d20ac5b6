"""Operators whose calls on parts are more than one call: changes of shape, random numbers, and what reads or sums along
a sharded axis of classes.

A function here gets the partitioner, the operator and the arguments of a call, with values in the place of tensors. It
returns the value of the call, or None where the general rules do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meta.dim import Dim, product
from meta.distributed.tensor.conversions import Conversions
from meta.distributed.tensor.placement import REPLICATED, Distributed, Partial, Sharded, Value, divides, part_type
from meta.dtype import HALVES
from meta.ir.type import TensorType
from meta.op.registry import Op, get
from meta.op.rules import class_axis


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


# --- products and random numbers -------------------------------------------------------------------------------------


def _dense(p: Conversions, x: Distributed, w: Distributed, bias: Distributed | None) -> Value | None:
    """A bias is added once, to the sum of the ranks' products."""
    contracted = _is_divided_along(x, x.type.ndim - 1) or _is_divided_along(w, 1)
    if bias is None or not contracted:
        return None
    return p.compute("add", p.compute("dense", x, w, None), bias)


def _is_divided_along(x: Distributed, axis: int) -> bool:
    return isinstance(x.placement, Sharded) and x.placement.axis == axis


def _dropout(p: Conversions, x: Distributed, key: Distributed, rate: float) -> Value | None:
    """The mask that one process draws; each rank takes its part of it."""
    if not isinstance(x.placement, Sharded):
        return None
    mask = p.compute("bernoulli", key, x.type.shape, 1 - rate, "bool")
    return p.compute("dropout_dx", x, mask, rate), mask


# --- tables whose rows are divided -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Positions in a table that is divided by rows among the ranks.

    row: positions among the rank's rows, 0 for rows of other ranks and -1 for positions outside of the table, which the
        operator treats as such.  elsewhere: which positions are rows of other ranks."""

    row: Any
    elsewhere: Any

    def masked(self, p: Conversions, x: Any) -> Any:
        """Rows with zeros at positions of other ranks."""
        new = tuple(range(self.elsewhere.type.ndim, x.type.ndim))
        elsewhere = p.emit("expand_dims", self.elsewhere, new) if new else self.elsewhere
        return p.emit("where", elsewhere, 0, x)


def _lookup(p: Conversions, indices: Distributed, rows: int) -> _Lookup:
    """rows: of the whole table."""
    size = rows // p.ranks
    place = p.emit("cast", p.whole(indices), "int64")
    own = p.emit("subtract", place, p.emit("multiply", p.rank(indices.type), size))
    valid = p.emit("logical_and", p.emit("greater_equal", place, 0), p.emit("less", place, rows))
    is_local = p.emit("logical_and", p.emit("greater_equal", own, 0), p.emit("less", own, size))
    elsewhere = p.emit("logical_and", valid, p.emit("logical_not", is_local))
    return _Lookup(p.emit("where", elsewhere, 0, p.emit("where", valid, own, -1)), elsewhere)


def _embedding(p: Conversions, table: Distributed, indices: Distributed) -> Value | None:
    """Each rank looks up the rows that it has."""
    if table.placement != Sharded(0):
        return None
    lookup = _lookup(p, indices, int(table.type.shape[0]))
    rows = p.emit("embedding", table.atoms[table.placement], lookup.row)
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
        return p.emit("embedding_dx", lookup.masked(p, p.whole(dy)), lookup.row, rows // p.ranks)

    result.makers[Sharded(0)] = own_rows
    return result


# --- cross entropy over divided classes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """The computations that a loss and its gradient share, with reductions over all ranks' classes.

    shifted: logits minus the largest of the row.  powers: their exponentials.  total: sums of these, with an axis of
    size 1.  hits: whether a class is the target.  counted: which targets are not ignored.  weight: of a row: 1, 0 if it
    is ignored, NaN for an invalid target."""

    axis: int
    shifted: Value
    powers: Value
    total: Value
    hits: Value
    counted: Value
    weight: Value

    def share(self, p: Conversions, values: Value, reduction: str) -> Value:
        """Values divided by the number of targets for the mean."""
        return p.compute("divide", values, p.compute("sum", self.weight)) if reduction == "mean" else values


def _loss_rows(p: Conversions, x: Distributed, target: Distributed, ignore_index: int) -> _Rows:
    key = x, target, ignore_index
    if key not in p.losses:
        p.losses[key] = _new_loss_rows(p, x, target, ignore_index)
    return p.losses[key]


def _new_loss_rows(p: Conversions, x: Distributed, target: Distributed, ignore_index: int) -> _Rows:
    assert isinstance(x.placement, Sharded)
    axis, ndim, dtype = x.placement.axis, x.type.ndim, "float32" if x.type.dtype in HALVES else x.type.dtype
    classes = int(x.type.shape[axis])
    wide = p.compute("cast", x, dtype)  # mixed precision, which comes later, keeps it
    shifted = p.compute("subtract", wide, p.compute("max", wide, (axis,), True))
    powers = p.compute("exp", shifted)
    numbers = p.emit("arange", 0, classes, 1, "int64", x.type.device)
    part = Sharded(0, x.placement.blocks)
    column = p.compute(
        "reshape", Distributed(numbers.type, part, p.sliced(numbers, part)),
        tuple(classes if i == axis else 1 for i in range(ndim)),
    )  # fmt: skip
    label = p.compute("cast", target, "int64")
    is_label = p.compute("logical_and", p.compute("greater_equal", label, 0), p.compute("less", label, classes))
    counted = p.compute("not_equal", label, ignore_index)
    weight = p.compute("where", counted, p.compute("where", is_label, 1.0, math.nan), 0.0)
    return _Rows(
        axis, shifted, powers, p.compute("sum", powers, (axis,), True),
        p.compute("equal", column, p.compute("expand_dims", label, (axis,))), counted,
        p.compute("cast", weight, dtype),
    )  # fmt: skip


def _is_divided(x: Distributed, weight: Distributed | None, smoothing: float) -> bool:
    """Whether the loss is one over divided classes, and neither weighted nor smoothed."""
    return _is_divided_along(x, class_axis(x.type.ndim)) and weight is None and not smoothing


def _cross_entropy(
    p: Conversions, x: Distributed, target: Distributed, weight: Distributed | None, reduction: str, ignore_index: int,
    smoothing: float,
) -> Value | None:  # fmt: skip
    """log(total) - shifted[target], by row."""
    if not _is_divided(x, weight, smoothing):
        return None
    rows = _loss_rows(p, x, target, ignore_index)
    picked = p.compute("sum", p.compute("where", rows.hits, rows.shifted, 0), (rows.axis,), False)
    total = p.compute("log", p.compute("squeeze", rows.total, (rows.axis,)))
    losses = p.compute("multiply", p.compute("subtract", total, picked), rows.weight)
    losses = p.compute("where", rows.counted, losses, 0)
    if reduction != "none":
        losses = rows.share(p, p.compute("sum", losses), reduction)
    return p.compute("cast", losses, x.type.dtype)


def _cross_entropy_dx(
    p: Conversions, x: Distributed, target: Distributed, dy: Distributed, weight: Distributed | None, reduction: str,
    ignore_index: int, smoothing: float,
) -> Value | None:  # fmt: skip
    """(powers / total - hits) * scale, by row."""
    if not _is_divided(x, weight, smoothing):
        return None
    rows = _loss_rows(p, x, target, ignore_index)
    assert isinstance(rows.weight, Distributed)
    each = rows.share(p, p.compute("cast", dy, rows.weight.type.dtype), reduction)
    scale = p.compute("where", rows.counted, p.compute("multiply", rows.weight, each), 0)
    scale = p.compute("expand_dims", scale, (rows.axis,))
    shares = p.compute("multiply", rows.powers, p.compute("divide", scale, rows.total))
    gradient = p.compute("subtract", shares, p.compute("where", rows.hits, scale, 0))
    return p.compute("cast", gradient, x.type.dtype)


_SPECIAL: Mapping[str, Callable[..., Value | None]] = {
    "reshape": _reshape, "concatenate": _concatenate, "split": _split, "dense": _dense, "dropout": _dropout,
    "embedding": _embedding, "embedding_dx": _embedding_dx, "cross_entropy": _cross_entropy,
    "cross_entropy_dx": _cross_entropy_dx,
}  # fmt: skip
