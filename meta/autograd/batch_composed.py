"""Operators in terms of others inside of `vmap`, for calls whose operands have no axis for the batch: they flatten a
tensor, reduce losses of all their elements, or differ in operands that one call of the operator shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import meta
from meta.autograd.levels import call
from meta.ir.type import Type, flat_types
from meta.op.decomposition import decompositions
from meta.op.grad.support import share_of, widen
from meta.op.registry import USER, Op
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of, with_leaves


def composed(op: Op, args: tuple[Any, ...], out: Type) -> Any:
    """The result of a call, of type `out`, by other operators; None if none are known."""
    if "reduction" in op.schema.index and "target" in op.schema.index:
        result = _loss(op, args)
    else:
        result = _COMPOSED[op.name](*args) if op.name in _COMPOSED else None
    return _decomposed(op, args, out) if result is None else result


def _decomposed(op: Op, args: tuple[Any, ...], out: Type) -> Any:
    """The result by the decomposition of the operator, in float32 for halves."""
    each = decompositions(op.family).get(op.name) if op.family != USER else None
    if each is None:
        return None
    if each.wide:
        args = with_leaves(args, [widen(x) if isinstance(x, TensorLike) else x for x in leaves_of(args)])  # type: ignore[type-var]
    result = each.function(*args)
    if result is None:
        return None
    dtypes = [kind.dtype for kind in flat_types((out,))]
    ys = zip(leaves_of(result), dtypes, strict=True)
    return with_leaves(result, [y if y.dtype == dtype else meta.cast(y, dtype) for y, dtype in ys])


# --- losses: of single elements, then reduced ------------------------------------------------------------------------


def _loss(op: Op, args: tuple[Any, ...]) -> Any:
    """A loss from the losses of single elements, or the gradient of it from theirs."""
    values = dict(zip(op.schema.names, args, strict=True))
    reduction, target = values["reduction"], values["target"]
    if reduction == "none":
        return None
    has_classes = "ignore_index" in values
    shape = target.shape if has_classes else values["x"].shape
    values["reduction"] = "none"
    if "dy" not in values:
        losses = call(op, tuple(values.values()))
        total = meta.sum(losses)
        if reduction == "sum":
            return total
        return total / _weights(values, total.dtype) if has_classes else meta.mean(losses)
    dy = values["dy"]
    if reduction == "mean":
        dy = dy / _weights(values, dy.dtype) if has_classes else dy * share_of(values["x"].size, dy)
    values["dy"] = meta.broadcast_to(dy, shape)
    return call(op, tuple(values.values()))


def _weights(values: Mapping[str, Any], dtype: str) -> Any:
    """The sum of the weights of the classes, without those that are ignored."""
    target, weight = values["target"], values["weight"]
    counted = meta.not_equal(target, values["ignore_index"])
    weights = meta.cast(counted, dtype)
    return meta.sum(weights if weight is None else weights * meta.take(weight, meta.where(counted, target, 0), 0))


# --- others ----------------------------------------------------------------------------------------------------------


def _matmul(x1: Any, x2: Any, transpose_a: bool, transpose_b: bool) -> Any:
    """Vectors become matrices."""
    if x1.ndim == 2 and x2.ndim == 1:
        return meta.matmul(x2, x1, False, not transpose_a)
    if x1.ndim == 1:
        return meta.squeeze(meta.matmul(meta.expand_dims(x1, 0), x2, False, transpose_b), -1 - (x2.ndim > 1))
    if x2.ndim == 1:
        return meta.squeeze(meta.matmul(x1, meta.expand_dims(x2, 1), transpose_a, False), -1)
    return None


def _dense(x: Any, w: Any, bias: Any) -> Any:
    y = meta.matmul(x, w, False, True)
    return y if bias is None else y + bias


def _flat(x: Any) -> Any:
    return meta.reshape(x, (-1,))


def _embedding(weight: Any, indices: Any) -> Any:
    return meta.take(weight, indices, 0, "raise")


def _take(x: Any, indices: Any, axis: int | None, mode: Any) -> Any:
    return meta.take(_flat(x), indices, 0, mode) if axis is None else None


def _repeat(x: Any, repeats: int, axis: int | None) -> Any:
    return meta.repeat(_flat(x), repeats, 0) if axis is None else None


def _position(name: str) -> Callable[..., Any]:
    def run(x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(meta, name)(_flat(x), 0) if axis is None and not keepdims else None

    return run


def _like(name: str, fact: str) -> Callable[..., Any]:
    """The operator that takes a fact of a tensor in the place of the tensor."""

    def run(x: Any, like: Any) -> Any:
        return getattr(meta, name)(x, getattr(like, fact))

    return run


_COMPOSED: Final[Mapping[str, Callable[..., Any]]] = {
    "matmul": _matmul, "dense": _dense, "embedding": _embedding, "take": _take, "repeat": _repeat,
    "argmax": _position("argmax"), "argmin": _position("argmin"), "cast_like": _like("cast", "dtype"),
    "reshape_like": _like("reshape", "shape"), "broadcast_to_like": _like("broadcast_to", "shape"),
}  # fmt: skip
