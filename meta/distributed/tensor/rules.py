"""How the axes of operands and results of operators correspond, by which a program computes with parts of them.

Elementwise operators need nothing but their declared pattern; the other rules are in a table. An operator without a
rule computes with whole operands on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from meta.dim import Dim
from meta.distributed.tensor.placement import Reduction
from meta.ir.type import TensorType
from meta.op.registry import Op
from meta.op.rules import moved, swapped

Labels: TypeAlias = "tuple[int | None, ...]"
"""A label for each axis of a tensor; None for an axis that has to be whole."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes with one label correspond: parts of operands along it give parts of results along it. Results without the
    label are reductions over it, as `reductions` says for each label.

    reductions: label -> reduction of the results that the ranks compute from their parts."""

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    reductions: Mapping[int, Reduction] = field(default_factory=dict[int, "Reduction"])


@dataclass(frozen=True, slots=True)
class Typed:
    """A call, by types.

    args: argument -> type of a tensor, or the value of an attribute.  operands: types of the tensors among the
    arguments, in order.  results: types of the results."""

    op: Op
    args: Mapping[str, Any]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


Rule = Callable[[Typed], Axes | None]


def axes_of(call: Typed) -> Axes | None:
    """How the axes of a call correspond; None where that is not known."""
    rule = _RULES.get(call.op.name) if call.op.family != "user" else None
    if rule is None and call.op.pattern in ("elemwise", "broadcast"):
        rule = _elementwise
    return None if rule is None else rule(call)


def _aligned(shape: tuple[Dim, ...], out: tuple[Dim, ...]) -> Labels | None:
    """Labels of a shape that broadcasts to another, whose axes are labelled by their numbers; None if it does not."""
    first = len(out) - len(shape)
    if first < 0 or any(d != 1 and d != out[first + i] for i, d in enumerate(shape)):
        return None
    return tuple(None if d == 1 else first + i for i, d in enumerate(shape))


def _elementwise(call: Typed) -> Axes | None:
    if "reduction" in call.args or "axis" in call.args:
        return None  # a mean depends on the number of elements
    out = call.results[0].shape
    labels = [_aligned(kind.shape, out) for kind in (*call.operands, *call.results)]
    if any(label is None for label in labels) or any(kind.shape != out for kind in call.results):
        return None
    count = len(call.operands)
    return Axes(tuple(labels[:count]), tuple(labels[count:]))  # type: ignore[arg-type]


def _numbered(kind: TensorType, *whole: int) -> Labels:
    """The numbers of the axes as labels, None for those that have to be whole."""
    return tuple(None if i in whole else i for i in range(kind.ndim))


def _positive(axes: Any, ndim: int) -> tuple[int, ...]:
    listed = (axes,) if isinstance(axes, int) else axes
    return tuple(a % ndim for a in listed)


def _rows(call: Typed) -> Axes | None:
    """Rows along `axis` that do not depend on each other. Results of other shapes, such as gradients of
    scales, are sums of all rows."""
    x = call.operands[0]
    whole = _positive(call.args["axis"], x.ndim)

    def labels(kind: TensorType) -> Labels:
        return _numbered(x, *whole) if kind.shape == x.shape else (None,) * kind.ndim

    rows = tuple(i for i in range(x.ndim) if i not in whole)
    results = tuple(map(labels, call.results))
    return Axes(tuple(map(labels, call.operands)), results, dict.fromkeys(rows, "sum"))


def _reduction(kind: Reduction | None) -> Rule:
    """A reduction over `axis`. kind: what all ranks' results are reduced by, None if there is nothing for it."""

    def rule(call: Typed) -> Axes | None:
        (x,) = call.operands
        axis, keepdims = call.args["axis"], call.args["keepdims"]
        reduced = range(x.ndim) if axis is None else _positive(axis, x.ndim)
        labels = _numbered(x, *(() if kind is not None else reduced))
        output_labels = tuple(None if i in reduced else i for i in range(x.ndim) if keepdims or i not in reduced)
        return Axes((labels,), (output_labels,), dict.fromkeys(reduced, kind) if kind is not None else {})

    return rule


def _sum_to(call: Typed) -> Axes | None:
    (x,), (y,) = call.operands, call.results
    labels = _aligned(y.shape, x.shape)
    if labels is None:
        return None
    reduced = (i for i in range(x.ndim) if i not in labels)
    return Axes((_numbered(x),), (labels,), dict.fromkeys(reduced, "sum"))


def _matmul(call: Typed) -> Axes | None:
    (a, b), (y,) = call.operands, call.results
    if a.ndim < 2 or b.ndim < 2:
        return None
    batch = y.shape[:-2]
    of_a, of_b = _aligned(a.shape[:-2], batch), _aligned(b.shape[:-2], batch)
    if of_a is None or of_b is None:
        return None
    m, n, k = y.ndim - 2, y.ndim - 1, y.ndim
    left = (k, m) if call.args["transpose_a"] else (m, k)
    right = (n, k) if call.args["transpose_b"] else (k, n)
    return Axes(((*of_a, *left), (*of_b, *right)), (_numbered(y),), {k: "sum"})


def _dense(call: Typed) -> Axes | None:
    x, n, k = call.operands[0], call.operands[0].ndim - 1, call.operands[0].ndim
    rows = tuple(range(x.ndim - 1))
    operands: tuple[Labels, ...] = ((*rows, k), (n, k), (n,))
    # A bias is added once, so that the sum of the ranks' results is one of products.
    reductions: dict[int, Reduction] = {k: "sum"} if len(call.operands) == 2 else {}
    return Axes(operands[: len(call.operands)], ((*rows, n),), reductions)


def _attention(call: Typed) -> Axes | None:
    """Heads and samples do not depend on each other."""
    lead = call.operands[0].ndim - 2
    if any(kind.shape[:lead] != call.operands[0].shape[:lead] for kind in call.operands):
        return None

    def labels(kind: TensorType) -> Labels:
        return tuple(i if i < lead else None for i in range(kind.ndim))

    return Axes(tuple(map(labels, call.operands)), tuple(map(labels, call.results)))


def _embedding(call: Typed) -> Axes | None:
    (table, indices), (y,) = call.operands, call.results
    return Axes(((None, *range(indices.ndim, y.ndim)), _numbered(indices)), (_numbered(y),)) if table.ndim else None


def _embedding_dx(call: Typed) -> Axes | None:
    dy, indices = call.operands
    features = tuple(range(indices.ndim, dy.ndim))
    sums = dict.fromkeys(range(indices.ndim), "sum")
    return Axes((_numbered(dy), _numbered(indices)), ((None, *features),), sums)  # type: ignore[arg-type]


def _reordered(order: Callable[[Typed], tuple[int, ...]]) -> Rule:
    """A permutation of axes. order: for each axis of the result, the operand's axis."""

    def rule(call: Typed) -> Axes | None:
        return Axes((_numbered(call.operands[0]),), (order(call),))

    return rule


def _transposed(call: Typed) -> tuple[int, ...]:
    axes, ndim = call.args["axes"], call.operands[0].ndim
    return tuple(reversed(range(ndim))) if axes is None else _positive(axes, ndim)


def _squeeze(call: Typed) -> Axes | None:
    (x,) = call.operands
    axis = call.args["axis"]
    gone = [i for i, d in enumerate(x.shape) if d == 1] if axis is None else _positive(axis, x.ndim)
    return Axes((_numbered(x),), (tuple(i for i in range(x.ndim) if i not in gone),))


def _expand_dims(call: Typed) -> Axes | None:
    (x,), (y,) = call.operands, call.results
    new, old = _positive(call.args["axis"], y.ndim), iter(range(x.ndim))
    return Axes((_numbered(x),), (tuple(None if i in new else next(old) for i in range(y.ndim)),))


def _joined(call: Typed) -> Axes | None:
    """Concatenations along an axis, and the parts of a split."""
    axis = call.args["axis"] % call.operands[0].ndim
    return Axes(
        tuple(_numbered(kind, axis) for kind in call.operands), tuple(_numbered(kind, axis) for kind in call.results)
    )


def _stack(call: Typed) -> Axes | None:
    (y,) = call.results
    axis, old = call.args["axis"] % y.ndim, iter(range(y.ndim))
    labels = tuple(None if i == axis else next(old) for i in range(y.ndim))
    return Axes(tuple(map(_numbered, call.operands)), (labels,))


def _strided_slice(call: Typed) -> Axes | None:
    (x,) = call.operands
    begin, strides = call.args["begin"], call.args["strides"] or (1,) * x.ndim
    sizes = zip(begin, strides, x.shape, call.results[0].shape, strict=False)
    # The ends of whole axes are ends of parts as well, because ends behind an axis are clipped.
    cut = [i for i, (first, step, size, new) in enumerate(sizes) if (first, step, new) != (0, 1, size)]
    return Axes((_numbered(x, *cut),), (_numbered(x, *cut),))


def _pad(call: Typed) -> Axes | None:
    (x,) = call.operands
    widths = call.args["pad_width"]
    padded = [i for i in range(x.ndim) if any(widths[2 * i : 2 * i + 2])]
    return Axes((_numbered(x, *padded),), (_numbered(x, *padded),))


def _take(call: Typed) -> Axes | None:
    x, indices = call.operands
    if call.args["axis"] is None:
        return None
    axis = call.args["axis"] % x.ndim
    places = tuple(range(x.ndim, x.ndim + indices.ndim))
    labels = _numbered(x, axis)
    return Axes((labels, places), ((*labels[:axis], *places, *labels[axis + 1 :]),))


_RULES: Mapping[str, Rule] = {
    "stop_gradient": _elementwise, "straight_through": _elementwise,
    "softmax": _rows, "softmax_dx": _rows, "log_softmax": _rows, "log_softmax_dx": _rows, "rms_norm": _rows,
    "layer_norm": _rows, "layer_norm_dx": _rows, "layer_norm_dwb": _rows, "layer_norm_dxwb": _rows,
    "sum": _reduction("sum"), "mean": _reduction("mean"), "max": _reduction("max"), "min": _reduction("min"),
    "any": _reduction("max"), "all": _reduction("min"), "prod": _reduction(None), "logsumexp": _reduction(None),
    "std": _reduction(None), "var": _reduction(None), "sum_to": _sum_to,
    "matmul": _matmul, "dense": _dense, "embedding": _embedding, "embedding_dx": _embedding_dx, "take": _take,
    "scaled_dot_product_attention": _attention, "scaled_dot_product_attention_dx": _attention,
    "transpose": _reordered(_transposed),
    "swap_axis": _reordered(lambda call: swapped(call.args["axis1"], call.args["axis2"], call.operands[0].ndim)),
    "moveaxis": _reordered(
        lambda call: moved(call.args["source"], call.args["destination"], call.operands[0].ndim)
    ),
    "squeeze": _squeeze, "expand_dims": _expand_dims, "concatenate": _joined, "split": _joined, "stack": _stack,
    "strided_slice": _strided_slice, "pad": _pad,
}  # fmt: skip
