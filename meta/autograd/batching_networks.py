"""How operators of networks take one more axis in front: normalisations, losses, convolutions and pooling (see
meta.autograd.batching)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import meta
from meta.autograd.batched_calls import Batch, Rule, behind
from meta.autograd.levels import call, is_tensor
from meta.ir.type import TupleType


def first_only(*axes: str) -> Rule:
    """Only the first argument differs from call to call; the attributes `axes` name its axes."""

    def rule(b: Batch) -> Any:
        if not b.only(b.op.schema.names[0]):
            return None
        return b.kept(**{name: behind(b[name], b.types[0].ndim) for name in axes})

    return rule


def _dense(b: Batch) -> Any:
    if b.only("x"):
        return b.values
    rank = b.kind("x").ndim
    if rank < 2:
        return None
    y = meta.matmul(b["x"], b.aligned(1, rank), False, True)
    return y if b["bias"] is None else y + b.aligned(2, rank)


def _norm(b: Batch) -> Any:
    """Parameters that all calls share broadcast behind the axes; others multiply what is normalised without them."""
    ndim = b.kind("x").ndim
    axes = tuple(sorted(a % ndim for a in b["axis"]))
    attributes = {"axis": behind(b["axis"], ndim)}
    if b.only("x"):
        return b.kept(**attributes)
    if axes != tuple(range(ndim - len(axes), ndim)):
        return None
    absent = {name: None for name in ("scale", "bias") if name in b.op.schema.index}
    y = call(b.op, b.kept(x=b.stacked(0), **attributes, **absent))
    for name, combine in (("scale", meta.multiply), ("bias", meta.add)):
        if name in absent and b[name] is not None:
            y = combine(y, b.aligned(b.op.schema.index[name], ndim))
    return y


def _norm_dx(b: Batch) -> Any:
    if not b.only("x", "dy"):
        return None
    x, dy = b.stacked(b.op.schema.index["x"]), b.stacked(b.op.schema.index["dy"])
    return b.kept(x=x, dy=dy, axis=behind(b["axis"], b.kind("x").ndim))


def _bias_add(b: Batch) -> Any:
    if b.only("x"):
        return b.kept(axis=behind(b["axis"], b.kind("x").ndim))
    ndim, axis = b.kind("x").ndim, behind(b["axis"], b.kind("x").ndim)
    bias = b.stacked(b.op.schema.index["bias"])
    shape = (b.size, *(bias.shape[1] if i == axis else 1 for i in range(1, ndim + 1)))
    return b.stacked(0) + meta.reshape(bias, shape)


# --- losses: of single elements, then reduced for each call ----------------------------------------------------------


def _reduced(b: Batch, losses: Any, count: Any) -> Any:
    """The losses of each call by its reduction; `count()` is the divisor of their mean."""
    axes = tuple(range(1, losses.ndim))
    if b["reduction"] == "none":
        return losses
    total = meta.sum(losses, axes) if axes else losses
    return total / count() if b["reduction"] == "mean" else total


def _spread_dy(b: Batch, shape: Any, count: Any) -> Any:
    """The gradient of each call's reduced loss, spread over its losses, which have the shape `shape` in one call."""
    dy = b.stacked(b.op.schema.index["dy"])
    if b["reduction"] == "none":
        return dy
    dy = meta.reshape(dy, (b.size, *(1,) * len(shape)))
    if b["reduction"] == "mean":
        divisor = count()
        dy = dy / (meta.reshape(divisor, dy.shape) if is_tensor(divisor) else divisor)
    return meta.broadcast_to(dy, (b.size, *shape))


def _pair_loss(b: Batch) -> Any:
    """The rule of losses of elements of x and of a target of its shape; weights that all calls share broadcast."""
    if not b.only("x", "target", "dy"):
        return None
    index, x = b.op.schema.index, b.kind("x")
    pair = {name: b.stacked(index[name]) for name in ("x", "target")}
    if "dy" not in index:
        return _reduced(b, call(b.op, b.kept(**pair, reduction="none")), lambda: x.size)
    return call(b.op, b.kept(**pair, dy=_spread_dy(b, x.shape, lambda: x.size), reduction="none"))


def _class_loss(b: Batch) -> Any:
    """The rule of losses of rows of scores and their classes: the batch becomes a part of their rows."""
    if not b.only("x", "target", "dy"):
        return None
    index, classes = b.op.schema.index, b.kind("target").shape
    rows = (b.size * classes[0], *classes[1:]) if classes else (b.size,)
    changed: dict[str, Any] = {"reduction": "none"}
    changed["target"] = meta.reshape(b.stacked(index["target"]), rows)
    scores = b.kind("x").shape if "x" in index else b["shape"]
    flat = (b.size * scores[0], *scores[1:]) if classes else (b.size, *scores)
    if "x" in index:
        changed["x"] = meta.reshape(b.stacked(index["x"]), flat)
    if "shape" in index:
        changed["shape"] = flat
    if "dy" not in index:
        losses = meta.reshape(call(b.op, b.kept(**changed)), (b.size, *classes))
        return _reduced(b, losses, lambda: _weights(b, b.out.dtype))
    dy = _spread_dy(b, classes, lambda: _weights(b, b.kind("dy").dtype))
    changed["dy"] = meta.reshape(dy, rows)
    return meta.reshape(call(b.op, b.kept(**changed)), (b.size, *scores))


def _weights(b: Batch, dtype: str) -> Any:
    """The sum of the weights of the classes of each call, without those that are ignored."""
    target = b.stacked(b.op.schema.index["target"])
    counted = meta.not_equal(target, b["ignore_index"])
    weights = meta.cast(counted, dtype)
    if b["weight"] is not None:
        weights = weights * meta.take(b["weight"], meta.where(counted, target, 0), 0)
    axes = tuple(range(1, weights.ndim))
    return meta.sum(weights, axes) if axes else weights


# --- convolutions whose kernels differ from call to call: groups -----------------------------------------------------


def _in_groups(channels: Sequence[str], kernels: Sequence[str], result: str) -> Rule:
    """The axis becomes a part of the channels, axis 1 of the tensors `channels`, and of axis 0 of the `kernels`.

    result: "channels" or "kernels", which the result and `shape` are like."""

    def rule(b: Batch) -> Any:
        if b.op.schema.index.get("channels_last") is not None and b["channels_last"]:
            return None
        index = b.op.schema.index
        changed: dict[str, Any] = {"groups": b["groups"] * b.size}
        for name in kernels:
            w = b.stacked(index[name])
            changed[name] = meta.reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:]))
        for name in channels:
            x = meta.moveaxis(b.stacked(index[name]), 0, 1)
            changed[name] = meta.reshape(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))
        first, second, *rest = b.out.shape
        if "shape" in index:
            merged = (first, b.size * second) if result == "channels" else (b.size * first, second)
            changed["shape"] = (*merged, *rest)
        y = call(b.op, b.kept(**changed))
        if result == "kernels":
            return meta.reshape(y, (b.size, first, second, *rest))
        return meta.moveaxis(meta.reshape(y, (first, b.size, second, *rest)), 1, 0)

    return rule


def _either(*rules: Rule) -> Rule:
    """The first rule that fits."""

    def rule(b: Batch) -> Any:
        return next((outcome for each in rules if (outcome := each(b)) is not None), None)

    return rule


# --- convolutions and pooling: the axis becomes a part of their batch ------------------------------------------------


def _in_batch(*names: str) -> Rule:
    """The axis becomes part of the batch, axis 0 of the arguments `names`, which all other arguments share."""

    def rule(b: Batch) -> Any:
        if not b.only(*names):
            return None
        changed: dict[str, Any] = {}
        for name in names:
            x = b.stacked(b.op.schema.index[name])
            changed[name] = meta.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
        if "shape" in b.op.schema.index:
            n, *rest = b["shape"]
            changed["shape"] = (b.size * n, *rest)
        return _unmerged(b, call(b.op, b.kept(**changed)), b.out)

    return rule


def _unmerged(b: Batch, result: Any, kind: Any) -> Any:
    """Results whose axis 0 contains the batch, with the axis in front again."""
    if isinstance(kind, TupleType):
        return [_unmerged(b, y, t) for y, t in zip(result, kind.fields, strict=True)]
    return meta.reshape(result, (b.size, *kind.shape))


def _ranks(names: Sequence[str], rule: Rule) -> dict[str, Rule]:
    return {name.format(rank=rank): rule for name in names for rank in (1, 2, 3)}


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "mse_loss_dx",
                     "l1_loss_dx", "smooth_l1_loss_dx", "binary_cross_entropy_with_logits_dx"), _pair_loss),
    **dict.fromkeys(("cross_entropy", "nll_loss", "cross_entropy_dx", "nll_loss_dx"), _class_loss),
    **_ranks(("conv{rank}d", "conv{rank}d_transpose"),
             _either(_in_batch("x"), _in_groups(("x",), ("w",), "channels"))),
    **_ranks(("conv{rank}d_dx",), _either(_in_batch("dy"), _in_groups(("dy",), ("w",), "channels"))),
    **_ranks(("conv{rank}d_dw",), _in_groups(("x", "dy"), (), "kernels")),
    **_ranks(("avg_pool{rank}d", "max_pool{rank}d", "adaptive_avg_pool{rank}d",
              "adaptive_max_pool{rank}d", "max_pool{rank}d_with_indices", "adaptive_max_pool{rank}d_with_indices",
              "resize{rank}d"), _in_batch("x")),
    **_ranks(("avg_pool{rank}d_dx", "adaptive_avg_pool{rank}d_dx", "resize{rank}d_dx"),
             _in_batch("dy")),
    **_ranks(("max_pool{rank}d_dx", "adaptive_max_pool{rank}d_dx"), _in_batch("dy", "indices")),
    "batch_norm_infer": first_only("axis"),
    "bias_add": _bias_add,
    "dense": _dense,
    "layer_norm_dx": _norm_dx,
}  # fmt: skip
