"""How a call of an operator computes the calls of all elements of a batch at once, from the axes that correspond (see
meta.op.axes).

The batch becomes a further axis in front of the operands, or a part of an axis that they have: images of a convolution
are images of all calls, channels of kernels that differ from call to call are groups. A plan is right if all operands
that differ from call to call have the batch along axes of one label, the others do not have the label, and the results
do, in the shapes of the single results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import meta
from meta.autograd.levels import call as call_operator
from meta.dim import Dim, product
from meta.errors import MetaError
from meta.ir.type import TensorType, Type, Value
from meta.op.axes import Axes, TypedCall, axes_of, in_front, with_attributes
from meta.op.registry import Op
from meta.records import record
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of, with_leaves

_Shape: TypeAlias = "tuple[Dim, ...]"


@record
class _Tensor:
    """How a tensor has the batch: along `axis`, as an axis of the shape `apart`, which the call takes reshaped to
    `shape`. axis: None for an operand that all calls share."""

    axis: int | None
    apart: _Shape
    shape: _Shape

    def joined(self, x: Any, is_stacked: bool) -> Any:
        """A tensor as the call takes it. is_stacked: whether it has the batch in front; others are repeated."""
        if self.axis is None:
            return x
        if not is_stacked:
            x = meta.broadcast_to(meta.expand_dims(x, self.axis), self.apart)
        elif self.axis:
            x = meta.moveaxis(x, 0, self.axis)
        return x if x.shape == self.shape else meta.reshape(x, self.shape)

    def with_ones(self, count: int) -> _Tensor:
        """With axes of size 1 behind the batch, which is in front."""
        return _Tensor(self.axis, self.apart, (self.shape[0], *(1,) * count, *self.shape[1:]))

    def stacked(self, y: Any) -> Any:
        """A result of the call with the batch in front."""
        y = y if y.shape == self.apart else meta.reshape(y, self.apart)
        return meta.moveaxis(y, self.axis, 0) if self.axis else y


@record
class BatchPlan:
    """One call in place of the calls of a batch. operands: in order.  attributes: those that differ from theirs."""

    op: Op
    operands: tuple[_Tensor, ...]
    results: tuple[_Tensor, ...]
    attributes: Mapping[str, Any]

    def run(self, args: tuple[Any, ...], flags: Sequence[bool]) -> Any:
        """The stacked results. args: the arguments, stacked where `flags` says so for their leaves."""
        leaves, operands = list(leaves_of(args)), iter(self.operands)
        for i, (x, is_stacked) in enumerate(zip(leaves, flags, strict=True)):
            if isinstance(x, TensorLike):
                leaves[i] = next(operands).joined(x, is_stacked)
        new = with_leaves(args, leaves)
        if self.attributes:
            new = with_attributes(self.op, new, self.attributes)
        ys = call_operator(self.op, new)
        return with_leaves(ys, [r.stacked(y) for r, y in zip(self.results, leaves_of(ys), strict=True)])


def planned(op: Op, args: tuple[Any, ...], flags: tuple[bool, ...], size: Dim) -> tuple[Type, BatchPlan | None]:
    """The type of the result of one call, and the plan for all; None if there is none.

    args: of one call, types in the place of tensors.  flags: which leaves of the arguments differ from call to call."""
    is_static = isinstance(size, int) and all(t.is_static for t in leaves_of(args) if isinstance(t, TensorType))
    if not is_static or op.resolve is not None:
        return _planned(op, args, flags, size)
    return _known(op, args, tuple(map(type, args)), flags, size)  # True and 1.0 are equal to 1


@lru_cache
def _known(
    op: Op, args: tuple[Any, ...], classes: tuple[type, ...], flags: tuple[bool, ...], size: int
) -> tuple[Type, BatchPlan | None]:
    return _planned(op, args, flags, size)


def _planned(op: Op, args: tuple[Any, ...], flags: tuple[bool, ...], size: Dim) -> tuple[Type, BatchPlan | None]:
    out = op.infer(args)
    if isinstance(out, Value):
        return out, None
    one = TypedCall.of(op, args)
    tensors = [flag for flag, t in zip(flags, leaves_of(args), strict=True) if isinstance(t, TensorType)]
    return out, next(filter(None, _Planner(one, tensors, size).plans()), None)


class _Planner:
    """The plans for a call. flags: which operands differ from call to call."""

    def __init__(self, call: TypedCall, flags: Sequence[bool], size: Dim) -> None:
        self.call = call
        self.flags = flags
        self.size = size
        self.axes = axes_of(call)

    def plans(self) -> Iterator[BatchPlan | None]:
        """With shared operands as they are, then repeated. A product of matrices is better than many."""
        is_product = self.axes is not None and bool(self.axes.reductions) and len(self.flags) > 1
        each = [self.merged, self.in_front] if is_product else [self.in_front, self.merged]
        for flags in (self.flags, [True] * len(self.flags)):
            for plans in each:
                yield from plans(flags)

    def in_front(self, flags: Sequence[bool]) -> Iterator[BatchPlan | None]:
        """A further axis in front of the operands: of their own axes, or of those that broadcasting gives them; of
        another operand than the first also behind an axis that has to be whole."""
        attributes = in_front(self.call, self.size) if flags[0] else {}
        if attributes is None:
            return
        rank, operands = max(t.ndim for t in self.call.results), self.call.operands
        tensors = [self._tensor(t, 0 if flag else None) for flag, t in zip(flags, operands, strict=True)]
        if any(t.ndim < rank for t in operands):
            aligned = [t if t.axis is None else t.with_ones(rank + 1 - len(t.shape)) for t in tensors]
            yield self._checked(aligned, attributes)
        yield self._checked(tensors, attributes)
        if self.axes is not None and any(labels[:1] == (None,) for labels in self.axes.operands[1:]):
            places = [0, *(int(labels[:1] == (None,)) for labels in self.axes.operands[1:])]
            each = zip(flags, operands, places, strict=True)
            yield self._checked([self._tensor(t, place if flag else None) for flag, t, place in each], attributes)

    def _tensor(self, kind: TensorType, axis: int | None, is_merged: bool = False) -> _Tensor:
        """With the batch in front of an axis, or as a part of it."""
        if axis is None:
            return _Tensor(None, kind.shape, kind.shape)
        first, rest = kind.shape[:axis], kind.shape[axis:]
        apart = (*first, self.size, *rest)
        return _Tensor(axis, apart, (*first, product((self.size, rest[0])), *rest[1:]) if is_merged else apart)

    def _checked(self, operands: list[_Tensor], attributes: Mapping[str, Any]) -> BatchPlan | None:
        """The plan, if the labels of the call tell that it is right."""
        call = self._call(operands, attributes)
        axes = None if call is None else axes_of(call)
        if call is None or axes is None:
            return None
        pairs = [*zip(operands, axes.operands, strict=True)]
        found = {labels[tensor.axis] for tensor, labels in pairs if tensor.axis is not None}
        label = found.pop()
        if found or label is None or any(label in labels for tensor, labels in pairs if tensor.axis is None):
            return None
        results: list[_Tensor] = []
        for labels, kind, one in zip(axes.results, call.results, self.call.results, strict=True):
            if label not in labels:
                return None
            axis = labels.index(label)
            apart = (*one.shape[:axis], self.size, *one.shape[axis:])
            ones = kind.ndim - len(apart)  # results of operands with further axes in front
            if kind.with_shape(apart) is not one.with_shape(apart) or ones < 0:
                return None
            if kind.shape != (apart if not ones else (self.size, *(1,) * ones, *one.shape)):
                return None
            results.append(_Tensor(axis, apart, kind.shape))
        return BatchPlan(self.call.op, tuple(operands), tuple(results), attributes)

    def _call(self, operands: Sequence[_Tensor], attributes: Mapping[str, Any]) -> TypedCall | None:
        """The one call, by types; None if its operator does not take them."""
        kinds = iter([t.with_shape(new.shape) for t, new in zip(self.call.operands, operands, strict=True)])
        leaves = [next(kinds) if isinstance(x, TensorType) else x for x in leaves_of(self.call.args)]
        args = with_attributes(self.call.op, with_leaves(self.call.args, leaves), attributes)
        try:
            return TypedCall.of(self.call.op, args)
        except MetaError:
            return None

    # --- the batch as a part of axes that the operands have -----------------------------------------------------------

    def merged(self, flags: Sequence[bool]) -> Iterator[BatchPlan | None]:
        axes = self.axes
        if axes is None:
            return
        first = axes.operands[flags.index(True)]
        for label in (x for x in first if x is not None):
            has_label = [label in labels for labels in axes.operands]
            if has_label == list(flags) and all(label in labels for labels in axes.results):
                yield self._merged(axes, label)

    def _merged(self, axes: Axes, label: int) -> BatchPlan | None:
        operands, results = (
            [
                self._tensor(kind, labels.index(label) if label in labels else None, True)
                for labels, kind in zip(side, kinds, strict=True)
            ]
            for side, kinds in ((axes.operands, self.call.operands), (axes.results, self.call.results))
        )
        attributes: dict[str, Any] = {}
        if "shape" in self.call.op.schema.index:
            attributes["shape"] = results[0].shape
        if label in axes.counts:
            attributes[axes.counts[label]] = self.call[axes.counts[label]] * self.size
        call = self._call(operands, attributes)
        expected = [t.with_shape(new.shape) for t, new in zip(self.call.results, results, strict=True)]
        if call is None or list(call.results) != expected:
            return None
        return BatchPlan(self.call.op, tuple(operands), tuple(results), attributes)
