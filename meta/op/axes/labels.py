"""Labels of the axes of a call, and the forms that declare them (see meta.op.axes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Literal, TypeAlias

from meta.dim import Dim
from meta.ir.type import TensorType, TupleType, flat_types
from meta.op.registry import Op
from meta.records import record

Labels: TypeAlias = "tuple[int | None, ...]"
"""A label for each axis of a tensor; None for an axis that has to be whole."""
Reduction: TypeAlias = Literal["sum", "mean", "max", "min"]


@record
class Axes:
    """The labels of the axes of a call.

    operands, results: labels of each tensor.  reductions: label -> what results without the label are reduced by.
    counts: label -> the attribute that counts the blocks of its axes; blocks do not depend on each other."""

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    reductions: Mapping[int, Reduction] = field(default_factory=dict[int, "Reduction"])
    counts: Mapping[int, str] = field(default_factory=dict[int, str])


@record
class TypedCall:
    """A call, by types.

    args: the arguments in schema order, types in the place of tensors.  operands: types of the tensors among them.
    results: types of the results."""

    op: Op
    args: tuple[Any, ...]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    @classmethod
    def of(cls, op: Op, args: Sequence[Any]) -> TypedCall:
        """args: in schema order, types in the place of tensors. Raises MetaError for arguments that do not fit."""
        out = op.infer(args)
        results = out.fields if isinstance(out, TupleType) else (out,)
        return cls(op, tuple(args), tuple(flat_types(args)), results)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        """The argument called `name`."""
        return self.args[self.op.schema.index[name]]

    def get(self, name: str) -> Any:
        """The argument called `name`; None without one."""
        return self[name] if name in self.op.schema.index else None


def with_attributes(op: Op, args: Sequence[Any], changed: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments in schema order, some attributes replaced."""
    return tuple([changed.get(name, value) for name, value in zip(op.schema.names, args, strict=True)])


def numbered(kind: TensorType, whole: Sequence[int] = ()) -> Labels:
    """The numbers of the axes as labels, None for those that have to be whole."""
    return tuple(None if i in whole else i for i in range(kind.ndim))


def aligned(shape: Sequence[Dim], out: Sequence[Dim]) -> Labels | None:
    """Labels of a shape that broadcasts to another, whose axes are labelled by their numbers; None if it does not."""
    first = len(out) - len(shape)
    if first < 0 or any(d != 1 and d != out[first + i] for i, d in enumerate(shape)):
        return None
    return tuple(None if d == 1 and out[first + i] != 1 else first + i for i, d in enumerate(shape))


def positive(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front; None for all of them."""
    listed = range(ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    return tuple(a % max(ndim, 1) for a in listed)


# --- forms -----------------------------------------------------------------------------------------------------------

_Term: TypeAlias = "tuple[str, ...]"


@cache
def _terms(form: str) -> tuple[tuple[_Term, ...], tuple[_Term, ...]]:
    """The axes of each operand and of each result of a form."""
    before, after = (tuple(tuple(term.split()) for term in side.split(",")) for side in form.split("->"))
    return before, after


def labels_of(form: str, call: TypedCall) -> Axes | None:
    """The labels of a call by a form; None if its tensors have other numbers of axes."""
    before, after = _terms(form)
    if len(after) != len(call.results):
        return None
    given = [a for a, arg in zip(call.args, call.op.schema.args, strict=True) if arg.is_tensor]
    pairs = [(term, kind) for term, kind in zip(before, given, strict=True) if isinstance(kind, TensorType)]
    pairs += zip(after, call.results, strict=True)
    sizes = {name: n for name, n in (("A", _axes_in_front(call)), ("N", call.get("batch_dims"))) if n is not None}
    _solve(pairs, sizes)
    names: dict[tuple[str, int], int] = {}

    def labels(term: _Term, ndim: int) -> Labels:
        out: list[int | None] = []
        for token in term:
            count = sizes.get(token[-1], 0) if token[-1].isupper() else 1
            if token == "*":
                count = ndim - _length(term, sizes)
            is_whole = token[0] in "_*"
            out.extend(None if is_whole else names.setdefault((token, i), len(names)) for i in range(count))
        return tuple(out)

    found = [labels(term, kind.ndim) for term, kind in pairs]
    counts = {names["g", 0]: "groups"} if ("g", 0) in names else {}
    if not _fits(found, [kind for _, kind in pairs], counts):
        return None
    operands, results = tuple(found[: len(call.operands)]), tuple(found[len(call.operands) :])
    summed = [n for n in names.values() if any(n not in each for each in results)]
    return Axes(operands, results, dict.fromkeys(summed, "sum"), counts)


def _fits(labels: Sequence[Labels], kinds: Sequence[TensorType], counts: Mapping[int, str]) -> bool:
    """Whether tensors have as many axes as labels, and axes of one label one size: operands that broadcast have not.
    Axes of blocks may differ."""
    if any(len(each) != kind.ndim for each, kind in zip(labels, kinds, strict=True)):
        return False
    sizes: dict[int | None, Dim] = {}
    pairs = [pair for each, kind in zip(labels, kinds, strict=True) for pair in zip(each, kind.shape, strict=True)]
    known = [(label, d) for label, d in pairs if label is not None and label not in counts and isinstance(d, int)]
    return all(sizes.setdefault(label, d) == d for label, d in known)


def _axes_in_front(call: TypedCall) -> int | None:
    axis = call.get("axis")
    return axis % max(call.operands[0].ndim, 1) if isinstance(axis, int) else None


def _length(term: _Term, sizes: Mapping[str, int]) -> int:
    """The number of axes of a term, groups of unknown size left out."""
    return sum(sizes.get(t[-1], 0) if t[-1].isupper() else t != "*" for t in term)


def _solve(pairs: Sequence[tuple[_Term, TensorType]], sizes: dict[str, int]) -> None:
    """The numbers of axes of groups, from terms with one unknown."""
    for _ in pairs:
        for term, kind in pairs:
            unknown = [t[-1] for t in term if t == "*" or (t[-1].isupper() and t[-1] not in sizes)]
            if len(unknown) == 1 and unknown[0] != "*":
                sizes[unknown[0]] = kind.ndim - _length(term, sizes)
