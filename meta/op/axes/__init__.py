"""Which axes of the operands and results of operators correspond: declared once, and read by `vmap`, by tensor
parallelism and by the passes that change layouts.

    axes_of(TypedCall.of(get("dense"), types))    # x: (0, 1)  w: (2, 1)  y: (0, 2), and axis 1 is summed

Axes with one label correspond: parts of the operands along it give parts of the results along it. Most operators need
no entry: the axes of elementwise operators follow from their pattern, the axes of reductions and of operators that
compute along an axis from an argument `axis`. Others have a form in `meta.op.axes.forms`, as in einsum:

    "dense": "B k, n k -> B n"

A small letter is an axis, a capital a group of any number of axes, "_" and "*" an axis and a group that have to be
whole, and "_A" a group A that has to be whole. The group A is what is in front of the argument `axis`, N has
`batch_dims` axes, and the axis g is divided into `groups`. A label that a result lacks is summed over. Operands are
in the order of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from meta.dim import WHOLE, Dim, product
from meta.errors import MetaError
from meta.ir.type import TensorType
from meta.op.axes.forms import FORMS, SUMS
from meta.op.axes.labels import Axes as Axes
from meta.op.axes.labels import Labels, TypedCall, aligned, labels_of, numbered, positive
from meta.op.axes.labels import Reduction as Reduction
from meta.op.axes.labels import with_attributes as with_attributes
from meta.op.registry import USER, Op
from meta.tree import leaves_of, with_leaves


def axes_of(call: TypedCall) -> Axes | None:
    """How the axes of a call correspond; None where that is not known."""
    op = call.op
    entry = FORMS.get(op.name) if op.family != USER else None
    if callable(entry):
        entry = entry(call)
    if isinstance(entry, str):
        return labels_of(entry, call)
    if entry is not None or op.name in FORMS or not call.operands:
        return entry
    if is_elementwise(op) or call.get("reduction") == "none":
        return _elementwise(call)
    if op.family in (USER, "collective") or "key" in op.schema.index:
        return None
    if "keepdims" in op.schema.index:
        return _reduction(call)
    return _along(call) if call.get("axis") is not None or op.family == "fft" else None


def is_elementwise(op: Op) -> bool:
    """Whether the pattern of an operator says that each element of its results is computed from one of each operand."""
    return op.pattern in ("elemwise", "broadcast") and op.name not in FORMS


def _elementwise(call: TypedCall) -> Axes | None:
    if call.get("reduction") not in (None, "none") or "axis" in call.op.schema.index:
        return None  # a mean depends on the number of elements
    out = call.results[0].shape
    labels = [aligned(kind.shape, out) for kind in (*call.operands, *call.results)]
    if None in labels or any(kind.shape != out for kind in call.results):
        return None
    count = len(call.operands)
    return Axes(tuple(labels[:count]), tuple(labels[count:]))  # type: ignore[arg-type]


def _along(call: TypedCall) -> Axes:
    """Rows along axes, the others being axes of rows. Results of another rank are sums of all rows, if anything."""
    x = call.operands[0]
    whole = set(positive(call["axes" if call.op.family == "fft" else "axis"], x.ndim))
    kinds = (*call.operands, *call.results)
    whole.update(i for i in range(x.ndim) if any(t.ndim == x.ndim and t.shape[i] != x.shape[i] for t in kinds))

    def labels(kind: TensorType) -> Labels:
        return numbered(kind, tuple(whole)) if kind.ndim == x.ndim else (None,) * kind.ndim

    sums = [i for i in range(x.ndim) if i not in whole] if call.op.name in SUMS else []
    return Axes(tuple(map(labels, call.operands)), tuple(map(labels, call.results)), dict.fromkeys(sums, "sum"))


def _reduction(call: TypedCall) -> Axes | None:
    """A reduction over axes, or its gradient, whose other operands are results of the reduction."""
    x, kind = call.operands[0], SUMS.get(call.op.name)
    if call["axis"] is None and not takes_axes(call.op):
        return None
    reduced = positive(call["axis"], x.ndim)
    full = numbered(x, () if kind else reduced)
    less = tuple(None if i in reduced else i for i in range(x.ndim) if call["keepdims"] or i not in reduced)
    is_gradient = call.results[0].shape == x.shape and len(call.operands) > 1
    reductions = dict.fromkeys(reduced, kind) if kind else {}
    return Axes((full, *(less for _ in call.operands[1:])), (full if is_gradient else less,), reductions)  # type: ignore[arg-type]


def takes_axes(op: Op) -> bool:
    """Whether `axis` may be several axes."""
    return "axis" in op.schema.index and "IntTuple" in repr(op.schema.args[op.schema.index["axis"]].type)


# --- attributes ------------------------------------------------------------------------------------------------------


def in_front(call: TypedCall, size: Dim) -> dict[str, Any] | None:
    """The attributes of a call whose tensors have one more axis of `size` in front, as far as they change; None if
    they name no axis of such tensors."""
    names = [arg.name for arg in call.op.schema.args if arg.name in _IN_FRONT and not arg.is_tensor]
    changed = {name: _IN_FRONT[name](call, size) for name in names}
    return None if None in changed.values() else changed


def _behind(axis: int) -> int:
    return axis + 1 if axis >= 0 else axis


def _moved(name: str) -> Callable[[TypedCall, Dim], Any]:
    """Axes as they are counted behind the axis in front."""

    def change(call: TypedCall, size: Dim) -> Any:
        axes, x = call[name], call.operands[0]
        if axes is not None:
            return _behind(axes) if isinstance(axes, int) else tuple(map(_behind, axes))
        if call.op.name == "squeeze":
            return tuple(i for i, d in enumerate(x.shape, 1) if d == 1)
        return tuple(range(1, x.ndim + 1)) if takes_axes(call.op) else None

    return change


def _order(call: TypedCall, size: Dim) -> Any:
    if call.op.family == "fft":
        return tuple(map(_behind, call["axes"]))
    axes, ndim = call["axes"], call.operands[0].ndim
    return (0, *(i + 1 for i in (reversed(range(ndim)) if axes is None else positive(axes, ndim))))


def _shape(call: TypedCall, size: Dim) -> tuple[Dim, ...]:
    shape = call.results[0].shape
    missing = call.operands[0].ndim - len(shape) if call.op.name == "sum_to" else 0
    return (size, *(1,) * missing, *shape)


def _reps(call: TypedCall, size: Dim) -> tuple[Dim, ...]:
    reps = call["reps"]
    return (*(1,) * (call.results[0].ndim + 1 - len(reps)), *reps)


_IN_FRONT: Final[Mapping[str, Callable[[TypedCall, Dim], Any]]] = {
    **{name: _moved(name) for name in ("axis", "axis1", "axis2", "source", "destination")},
    "axes": _order, "shape": _shape, "reps": _reps,
    "begin": lambda call, size: (0, *call["begin"]),
    "end": lambda call, size: (WHOLE, *call["end"]),
    "strides": lambda call, size: (1, *call["strides"]) if call["strides"] else (),
    "pad_width": lambda call, size: (0, 0, *call["pad_width"]),
    "batch_dims": lambda call, size: call["batch_dims"] + 1,
}  # fmt: skip


# --- the order of axes -----------------------------------------------------------------------------------------------


def reordered(call: TypedCall, order: tuple[int, ...]) -> tuple[dict[str, Any], list[bool]] | None:
    """The attributes of a call on tensors with permuted axes, as far as they change, and which results are permuted.

    order: for each new axis the old one, of operands and results with as many axes; others stay. None if the result
    depends on the order of axes: if the new call has other labels."""
    names = [arg.name for arg in call.op.schema.args if arg.name in _IN_FRONT and not arg.is_tensor]
    if names not in ([], ["axis"]):
        return None
    axis, ndim = call.get("axis"), len(order)
    new = None if axis is None else [order.index(a) for a in positive(axis, ndim)]
    attributes: dict[str, Any] = {} if new is None else {"axis": new[0] if isinstance(axis, int) else tuple(new)}

    def moved(kind: TensorType) -> TensorType:
        return kind.with_shape(tuple(kind.shape[a] for a in order)) if kind.ndim == ndim else kind

    leaves = [moved(x) if isinstance(x, TensorType) else x for x in leaves_of(call.args)]
    try:
        after = TypedCall.of(call.op, with_attributes(call.op, with_leaves(call.args, leaves), attributes))
    except MetaError:
        return None
    old, labels = axes_of(call), axes_of(after)
    if old is None or labels is None:
        return None
    pairs = [*zip(old.operands, labels.operands, strict=True), *zip(old.results, labels.results, strict=True)]
    known: set[tuple[int | None, int | None]] = set()
    for before, now in pairs:
        known.update(zip((before[a] for a in order) if len(before) == ndim else before, now, strict=True))
    is_renaming = len(dict(known)) == len(known) == len({b for _, b in known})
    fits = is_renaming and all((a is None) == (b is None) for a, b in known)
    return (attributes, [kind.ndim == ndim for kind in call.results]) if fits else None


def joined(call: TypedCall) -> tuple[Any, ...] | None:
    """The arguments of a call with neighbouring axes of rows as one axis, types in the place of tensors; None where
    that is not known to give the same elements, and where no axes are joined."""
    names = [arg.name for arg in call.op.schema.args if arg.name in _IN_FRONT and not arg.is_tensor]
    labels, axis = axes_of(call), call.get("axis")
    if names not in ([], ["axis"]) or labels is None or axis is None or not call.operands:
        return None
    ndim, axes = call.operands[0].ndim, positive(axis, call.operands[0].ndim)
    rows = numbered(call.operands[0], axes)
    kept = tuple(row for row in rows if row is not None)
    operands, results = (
        [tuple(None if label in axes else label for label in own) for own in each]
        for each in (labels.operands, labels.results)
    )
    starts = [i for i in range(ndim) if i == 0 or i in axes or i - 1 in axes]
    if len(starts) == ndim or any(own != rows for own in operands) or any(own not in (rows, kept) for own in results):
        return None

    def shorter(kind: TensorType) -> TensorType:
        ends = (*starts[1:], ndim)
        return kind.with_shape(tuple(product(kind.shape[i:j]) for i, j in zip(starts, ends, strict=True)))

    leaves = [shorter(x) if isinstance(x, TensorType) else x for x in leaves_of(call.args)]
    new = tuple(starts.index(a) for a in axes)
    return with_attributes(call.op, with_leaves(call.args, leaves), {"axis": new[0] if isinstance(axis, int) else new})
