"""The operators whose axes do not follow from their other facts: forms, and functions of the attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from meta.dim import WHOLE, Dim, product
from meta.ir.type import TensorType
from meta.op.axes.labels import Axes, Labels, TypedCall, aligned, numbered, positive
from meta.op.rules import moved, swapped

Rule = Callable[[TypedCall], "Axes | str | None"]


def _ranks(forms: Mapping[str, Rule | str]) -> dict[str, Rule | str]:
    return {name.format(rank=rank): form for name, form in forms.items() for rank in (1, 2, 3)}


# --- products, losses, tables ----------------------------------------------------------------------------------------


def _matmul(call: TypedCall) -> Axes | None:
    """The last two axes of operands and results, behind axes that broadcast; vectors have one."""
    (a, b), (y,) = call.operands, call.results
    count = y.ndim - (a.ndim > 1) - (b.ndim > 1)
    of_a, of_b = (aligned(t.shape[:-2], y.shape[:count]) for t in (a, b))
    if of_a is None or of_b is None:
        return None
    m, n, k = count, count + (a.ndim > 1), y.ndim
    left = (k,) if a.ndim == 1 else (k, m) if call["transpose_a"] else (m, k)
    right = (k,) if b.ndim == 1 else (n, k) if call["transpose_b"] else (k, n)
    return Axes(((*of_a, *left), (*of_b, *right)), (numbered(y),), {k: "sum"})


def _dense(call: TypedCall) -> str:
    """A bias is added once: a sum of the products of parts is one without it."""
    return "B k, n k, n -> B n" if call["bias"] is None else "B _, n _, n -> B n"


def _attention(form: str) -> Rule:
    """A bias has the batch of the queries, or none."""

    def rule(call: TypedCall) -> str | None:
        operands, results = form.split(" -> ")
        lead = () if call["bias"] is None else tuple(call["bias"].shape[:-2])
        labels = "*" if all(n == 1 for n in lead) else "B _ _" if lead == tuple(call["q"].shape[:-2]) else None
        return labels and f"{operands}, {labels} -> {results}"

    return rule


def _class_loss(form: str) -> Rule:
    """c: the classes, which vectors of predictions have as their only axis.  t: the targets.  y: the results."""

    def rule(call: TypedCall) -> str | None:
        if call["reduction"] == "mean":
            return None
        rows = ("n S", "n _ S") if call["target"].ndim else ("", "_")
        each = rows[0] if call["reduction"] == "none" else ""
        return form.format(t=rows[0], x=rows[1], y=each)

    return rule


def _gather_nd(form: str) -> Rule:
    """The coordinates are along the first axis of the indices."""

    def rule(call: TypedCall) -> str | None:
        count = call["indices"].shape[0]
        return form.format("_ " * count) if isinstance(count, int) else None

    return rule


def _unchecked(form: str) -> Rule:
    """Operators that raise an error for some matrix unless they return `info`: on parts, some ranks would raise it."""
    return lambda call: None if call["check_errors"] else form


def _layout(form: str) -> Rule:
    """x, whose channels are behind the batch, or last."""
    return lambda call: form.format(x="n * g" if call.get("channels_last") else "n g *")


# --- changes of shape ------------------------------------------------------------------------------------------------


def _reordered(order: Callable[[TypedCall, int], tuple[int, ...]]) -> Rule:
    """A permutation of axes. order: for each axis of the result, the operand's axis."""
    return lambda call: Axes((numbered(call.operands[0]),), (order(call, call.operands[0].ndim),))


def _transposed(call: TypedCall, ndim: int) -> tuple[int, ...]:
    return tuple(reversed(range(ndim))) if call["axes"] is None else positive(call["axes"], ndim)


def _new_axes(call: TypedCall) -> Axes:
    """New axes of the result."""
    (y,) = call.results
    new, old = positive(call["axis"], y.ndim), iter(range(y.ndim))
    labels = tuple(None if i in new else next(old) for i in range(y.ndim))
    return Axes(tuple(map(numbered, call.operands)), (labels,))


def _squeeze(call: TypedCall) -> Axes | None:
    (x,), gone = call.operands, call["axis"]
    if gone is None:
        return None  # parts of size 1 would lose their axis
    return Axes((numbered(x),), (tuple(i for i in range(x.ndim) if i not in positive(gone, x.ndim)),))


def _reshape(call: TypedCall) -> Axes:
    """Axes of equal sizes behind as many elements in the operand as in the result."""
    (x, *_), (y,) = call.operands, call.results
    places = {(product(x.shape[:i]), d): i for i, d in enumerate(x.shape) if d != 0 and (d != 1 or i == 0)}
    labels = tuple(places.get((product(y.shape[:i]), d)) for i, d in enumerate(y.shape))
    kept = tuple(i if i in labels else None for i in range(x.ndim))
    return Axes((kept, *(_whole(t) for t in call.operands[1:])), (labels,))


def _whole(kind: TensorType) -> Labels:
    return (None,) * kind.ndim


def _sum_to(call: TypedCall) -> Axes | None:
    (x,), (y,) = call.operands, call.results
    labels = aligned(y.shape, x.shape)
    if labels is None:
        return None
    return Axes((numbered(x),), (labels,), {i: "sum" for i in range(x.ndim) if i not in labels})


def _unchanged(axes: Callable[[TypedCall, TensorType], Sequence[int]]) -> Rule:
    """axes: the axes of the first operand along which something happens. Other operands broadcast with the result."""

    def rule(call: TypedCall) -> Axes | None:
        x, y = call.operands[0], call.results[0]
        if any(t.ndim > y.ndim for t in call.operands) or x.ndim < y.ndim:
            return None
        whole = axes(call, x)

        def labels(kind: TensorType) -> Labels:
            sizes = enumerate(kind.shape, y.ndim - kind.ndim)
            return tuple(None if i in whole or (d == 1 and y.shape[i] != 1) else i for i, d in sizes)

        return Axes(tuple(map(labels, call.operands)), (labels(y),))

    return rule


def _sliced(call: TypedCall, x: TensorType) -> list[int]:
    """Ends of whole axes are ends of parts as well, because ends behind an axis are clipped."""
    shape: Sequence[Dim] = call.get("shape") or x.shape
    bounds = zip(call["begin"], call["end"], call["strides"] or (1,) * x.ndim, shape, strict=False)
    return [i for i, (first, last, step, size) in enumerate(bounds) if (first, step) != (0, 1) or not _ends(last, size)]


def _ends(last: Dim, size: Dim) -> bool:
    return last == size or (isinstance(last, int) and last >= (size if isinstance(size, int) else WHOLE))


def _padded(call: TypedCall, x: TensorType) -> list[int]:
    widths = call["pad_width"]
    return [i for i in range(x.ndim) if any(widths[2 * i : 2 * i + 2])]


def _tiled(call: TypedCall, x: TensorType) -> list[int]:
    first = x.ndim - len(call["reps"])
    return [first + i for i, n in enumerate(call["reps"]) if n != 1]


# --- the table -------------------------------------------------------------------------------------------------------

_POOLED, _POOLED_DX = "n c * -> n c *", "n c *, n c * -> n c *"
FORMS: Final[Mapping[str, Rule | str]] = {
    "matmul": _matmul, "dense": _dense,
    "dequantize_weight": "R _, R _ -> R _", "quantized_dense": "B _, n _, n _, n -> B n",
    "attention_with_lse": _attention("B _ _, B _ _, B _ _ -> B _ _, B _"),
    "attention_with_lse_dx": _attention("B _ _, B _ _, B _ _, B _ _, B _, B _ _ -> B _ _, B _ _, B _ _"),
    **_ranks({
        "conv{rank}d": _layout("{x}, g * -> {x}"), "conv{rank}d_transpose": "n g *, g * -> n g *",
        "conv{rank}d_dx": _layout("g *, {x} -> {x}"), "conv{rank}d_dw": _layout("{x}, {x} -> g *"),
        "max_pool{rank}d": _POOLED, "avg_pool{rank}d": _POOLED, "avg_pool{rank}d_dx": _POOLED,
        "max_pool{rank}d_with_indices": f"{_POOLED}, n c *", "max_pool{rank}d_dx": _POOLED_DX,
        "adaptive_max_pool{rank}d": _POOLED, "adaptive_avg_pool{rank}d": _POOLED,
        "adaptive_avg_pool{rank}d_dx": _POOLED, "adaptive_max_pool{rank}d_with_indices": f"{_POOLED}, n c *",
        "adaptive_max_pool{rank}d_dx": _POOLED_DX, "resize{rank}d": _POOLED, "resize{rank}d_dx": _POOLED,
    }),
    "cross_entropy": _class_loss("{x}, {t}, _ -> {y}"), "nll_loss": _class_loss("{x}, {t}, _ -> {y}"),
    "cross_entropy_dx": _class_loss("{x}, {t}, {y}, _ -> {x}"), "nll_loss_dx": _class_loss("{y}, {t}, _ -> {x}"),
    "bias_add": "A c Z, c -> A c Z", "batch_norm_infer": "A c Z, c, c, c, c -> A c Z",
    "batch_norm_train": "_A c _Z, c, c, c, c -> _A c _Z, c, c, c, c",
    "batch_norm_train_dxwb": "_A c _Z, _A c _Z, c, c, c -> _A c _Z, c, c",
    "batch_norm_stats": "_A c _Z -> c, c, c", "batch_norm_sums": "_A c _Z, _A c _Z, c, c -> c, c",
    "embedding": "_ F, I -> I F", "embedding_dx": "I F, I -> _ F",
    "take": lambda call: "A _ Z, I -> A I Z" if call["axis"] is not None else None,
    "index_select": "A _ Z, _ -> A _ Z",
    "gather_nd": _gather_nd("N {}F, _ N I -> N I F"), "gather_nd_dx": _gather_nd("N I F, _ N I -> N {}F"),
    **dict.fromkeys(("tril", "triu", "cofactor", "matrix_exp"), "B _ _ -> B _ _"),
    "pinv": lambda call: "B _ _, , -> B _ _" if call["atol"] is call["rtol"] is None else None,
    "det": "B _ _ -> B", "slogdet": "B _ _ -> B, B", "inv_ex": _unchecked("B _ _ -> B _ _, B"),
    "cholesky_ex": _unchecked("B _ _ -> B _ _, B"), "lu_factor_ex": _unchecked("B _ _ -> B _ _, B _, B"),
    "qr": "B _ _ -> B _ _, B _ _", "svd": "B _ _ -> B _ _, B _, B _ _", "eigh": "B _ _ -> B _, B _ _",
    "eig": "B _ _ -> B _, B _ _", "solve_ex": _unchecked("B _ _, B _ _ -> B _ _, B"),
    "solve_triangular": "B _ _, B _ _ -> B _ _",
    "pivots_to_permutation": "B _ -> B _", "view_as_real": "B -> B _", "view_as_complex": "B _ -> B",
    "frexp": "B -> B, B", "stop_gradient": "B -> B", "device_copy": "B -> B",
    "transpose": _reordered(_transposed),
    "swap_axis": _reordered(lambda call, ndim: swapped(call["axis1"], call["axis2"], ndim)),
    "moveaxis": _reordered(lambda call, ndim: moved(call["source"], call["destination"], ndim)),
    "expand_dims": _new_axes, "stack": _new_axes, "one_hot": _new_axes, "squeeze": _squeeze,
    "reshape": _reshape, "sum_to": _sum_to,
    "strided_slice": _unchanged(_sliced), "strided_slice_dx": _unchanged(_sliced), "strided_set": _unchanged(_sliced),
    "pad": _unchanged(_padded), "tile": _unchanged(_tiled),
}  # fmt: skip

SUMS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("sum", "layer_norm_dwb", "layer_norm_dxwb", "layer_norm_train_dxwb"), "sum"),
    "mean": "mean",
    "max": "max",
    "min": "min",
    "any": "max",
    "all": "min",
}
"""What results without an axis are reduced by, for operators along an axis."""
