"""Connectionist temporal classification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.dtype import is_float, is_int
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.functional._checks import Reduction, check_reduction, reduced

__all__ = ["ctc_loss"]
AMP = "never"

_Lengths = Any | Sequence[int]


def ctc_loss(
    x: T, target: T, input_lengths: _Lengths, target_lengths: _Lengths, blank: int = 0,
    reduction: Reduction = "mean", zero_infinity: bool = False,
) -> T:  # fmt: skip
    """The negative log-probability of sequences of labels, over all their alignments with the outputs of a network (A.
    Graves et al., "Connectionist Temporal Classification", 2006).

    x: logarithms of probabilities, (time, n, classes), or (time, classes) without a batch.
    target: integer labels, (n, length), or one sequence after another, (sum of target_lengths,).
    input_lengths, target_lengths: of each example, sequences of ints or integer tensors, (n,).
    blank: the class of no label.  zero_infinity: 0 in place of inf, the loss of a target that no alignment fits.
    "mean" divides each loss by the length of its target, then by n. As in torch, the gradient assumes that x is
    log_softmax of logits: it is exp(x) minus the probability of each class at each time given the target, whose sum
    over the classes is 0. Raises ArgumentError for shapes, dtypes and a blank that do not fit, PositionError for labels
    that are not classes and lengths beyond the target."""
    check_reduction("ctc_loss", reduction)
    if x.ndim == 2:
        x, target = meta.expand_dims(x, 1), meta.reshape(target, (1, -1))
        labels: Any = _lengths(target_lengths, x, 1)
        losses: Any = ctc_loss(x, target, _lengths(input_lengths, x, 1), labels, blank, "none", zero_infinity)
        if reduction == "mean":
            losses = losses / meta.cast(meta.maximum(labels, 1), losses.dtype)
        return meta.squeeze(losses, 0)
    _check(x, target, blank)
    batch = x.shape[1]
    inputs, labels = _lengths(input_lengths, x, batch), _lengths(target_lengths, x, batch)
    if target.ndim == 1:
        target = _padded(target, labels, target_lengths)
    losses = -_log_probability(x, meta.cast(target, "int64"), inputs, labels, blank)
    if zero_infinity:
        losses = meta.where(meta.equal(losses, math.inf), 0, losses)
    if reduction == "mean":
        losses = losses / meta.cast(meta.maximum(labels, 1), losses.dtype)
    return reduced(losses, reduction)


def _check(x: Tensor, target: Tensor, blank: int) -> None:
    if x.ndim != 3 or 0 in x.shape or not is_float(x.dtype):
        raise ArgumentError("ctc_loss", f"x is {x.dtype} of shape {tuple(x.shape)}", "floats, (time, n, classes)")
    fits = target.ndim == 1 or (target.ndim == 2 and target.shape[0] == x.shape[1])
    if not fits or not is_int(target.dtype):
        problem = f"target is {target.dtype} of shape {tuple(target.shape)}, 'x' has shape {tuple(x.shape)}"
        raise ArgumentError("ctc_loss", problem, "integer labels, (n, length), or (sum of target_lengths,)")
    if not 0 <= blank < x.shape[2]:
        raise ArgumentError("ctc_loss", f"blank is {blank}", f"0 to {x.shape[2] - 1}, a class")


def _lengths(lengths: _Lengths, x: T, batch: int) -> T:
    """Lengths as an int64 tensor (n,)."""
    if not isinstance(lengths, Tensor):
        listed = [lengths] if isinstance(lengths, int) else list(lengths)
        lengths = meta.array(listed, dtype="int64", device=x.device)
    tensor: Any = lengths
    if tensor.ndim > 1 or tensor.size != batch or not is_int(tensor.dtype):
        problem = f"lengths are {tensor.dtype} of shape {tuple(tensor.shape)}"
        raise ArgumentError("ctc_loss", problem, f"{batch} integers, one for each example")
    return meta.cast(meta.reshape(tensor, (batch,)), "int64")


def _padded(target: T, labels: T, lengths: _Lengths) -> T:
    """Sequences that follow each other as rows; elements behind the end of a row belong to others."""
    if isinstance(lengths, NDArray):
        lengths = lengths.tolist()
    longest = target.shape[0] if isinstance(lengths, Tensor) else max(lengths, default=0)
    begin = meta.cumsum(labels, 0) - labels
    place = meta.expand_dims(begin, 1) + meta.arange(0, longest, 1, "int64", target.device)
    return meta.take(target, meta.clip(place, 0, max(target.shape[0] - 1, 0)), 0)


def _log_probability(x: T, target: T, inputs: T, labels: T, blank: int) -> T:
    """The forward variables of section 4.1, in logarithms, up to the last time of each example; (n,)."""
    steps, batch, _ = x.shape
    count = target.shape[1]
    states = 2 * count + 1
    blanks = meta.full((batch, count, 1), blank, "int64", x.device)
    pairs = meta.concatenate([blanks, meta.expand_dims(target, 2)], 2)
    extended = meta.pad(meta.reshape(pairs, (batch, 2 * count)), ((0, 0), (0, 1)), blank)
    state = meta.arange(0, states, 1, "int64", x.device)
    last = meta.expand_dims(2 * labels, 1)
    inside = meta.where(meta.less_equal(state, last), extended, blank)  # what is behind a target may be any number
    emitted = meta.gather(x, 2, meta.broadcast_to(inside, (steps, batch, states)))
    is_label = meta.not_equal(extended, blank)
    skips = None
    if count > 1:
        before = meta.pad(extended, ((0, 0), (2, -2)), -1)
        skips = meta.logical_and(is_label, meta.not_equal(extended, before))
    first, *later = meta.split(emitted, (1,), 0)
    alpha = meta.where(meta.less(state, 2), meta.squeeze(first, 0), -math.inf)

    def advance(alpha: Tensor, element: tuple[Any, Any]) -> tuple[Any, tuple[()]]:
        emitted, time = element
        reached = _added(alpha, count, skips) + emitted
        return meta.where(meta.expand_dims(meta.greater(inputs, time), 1), reached, alpha), ()

    if steps > 1:
        alpha, _ = meta.scan(advance, alpha, (later[0], meta.arange(1, steps, 1, "int64", x.device)))
    ends = [meta.gather(alpha, 1, last)]
    if count:
        label = meta.gather(alpha, 1, meta.maximum(last - 1, 0))
        ends.append(meta.where(meta.greater(last, 0), label, -math.inf))
    total = meta.squeeze(_log_sum(ends), 1)
    return total - _normaliser(x, inputs)


def _added(alpha: T, count: int, skips: T | None) -> T:
    """The logarithm of the probability of all states from which each state is reached."""
    if count == 0:
        return alpha
    parts = [alpha, meta.pad(alpha, ((0, 0), (1, -1)), -math.inf)]
    if skips is not None:
        parts.append(meta.where(skips, meta.pad(alpha, ((0, 0), (2, -2)), -math.inf), -math.inf))
    return _log_sum(parts)


def _log_sum(parts: list[Any]) -> Any:
    """log(sum(exp(parts))), -inf with the gradient 0 where all are -inf."""
    stacked = meta.stack(parts, 0)
    is_nothing = meta.equal(meta.max(meta.stop_gradient(stacked), 0), -math.inf)
    total = meta.logsumexp(meta.where(is_nothing, 0, stacked), 0)
    return meta.where(is_nothing, -math.inf, total)


def _normaliser(x: Tensor, inputs: Tensor) -> Tensor:
    """0 with the gradient exp(x) up to the last time of each example."""
    total = meta.sum(meta.exp(x), 2)
    steps = meta.expand_dims(meta.arange(0, x.shape[0], 1, "int64", x.device), 1)
    excess = meta.where(meta.less(steps, inputs), total - meta.stop_gradient(total), 0)
    return meta.sum(excess, 0)
