"""TE computes of losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta.op.dialect.tvm import _math
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, const, element, select
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._reduce import Value, at, count, finish, reduced, widened
from meta.op.dialect.tvm._register import compute
from meta.op.dialect.tvm.nn import exponentials

Expr = Any


def _all_axes(x: Any) -> tuple[int, ...]:
    return tuple(range(len(x.shape)))


def _reduce(losses: Any, reduction: str, divisor: Callable[[], Expr], out: Any, name: str) -> Any:
    """The losses, their sum, or their sum over a divisor."""
    if reduction == "none":
        return te.compute(losses.shape, lambda *i: cast(losses(*i), out.dtype), name)
    axes = _all_axes(losses)
    total = reduced(losses, axes, te.sum, lambda *i: losses(*i), "total")
    return finish(total, axes, out, name, lambda v: v / divisor() if reduction == "mean" else v)


def _reduced_elements(value: Value, like: Any, reduction: str, out: Any, name: str) -> Any:
    """The same of `value` at each position of `like`, without storing all of them first."""
    if reduction == "none":
        return te.compute(like.shape, lambda *i: cast(value(*i), out.dtype), name)
    axes, number = _all_axes(like), count(like, _all_axes(like), wide(out.dtype))
    total = reduced(like, axes, te.sum, value, "total")
    return finish(total, axes, out, name, lambda v: v / number if reduction == "mean" else v)


def _incoming(dy: Any, like: Any, reduction: str) -> Value:
    """The gradient that reaches each element of `like`."""
    dtype = wide(dy.dtype)
    if reduction == "none":
        return widened(dy)
    if reduction == "sum":
        return lambda *_: cast(dy(), dtype)
    return lambda *_: cast(dy(), dtype) / count(like, _all_axes(like), dtype)


# --- losses of pairs of numbers


def _absolute(d: Expr) -> Expr:
    return tirx.abs(d)


def _sign(d: Expr) -> Expr:
    """-1, 0 or 1; NaN of NaN."""
    one, zero = const(d, 1), const(d, 0)
    return select(d > zero, one, select(d < zero, -one, d * zero))


def _smooth(d: Expr, beta: float) -> Expr:
    if beta == 0:
        return _absolute(d)
    quadratic = d * d * const(d, 0.5 / beta)
    return select(tirx.abs(d) < const(d, beta), quadratic, tirx.abs(d) - const(d, 0.5 * beta))


def _smooth_slope(d: Expr, beta: float) -> Expr:
    if beta == 0:
        return _sign(d)
    return select(tirx.abs(d) < const(d, beta), d / const(d, beta), _sign(d))


def _pairwise(name: str, value: Callable[..., Expr], slope: Callable[..., Expr]) -> None:
    """Register a loss of the difference of two numbers and its gradient; both functions get the attributes too."""

    def difference(x: Any, target: Any) -> Value:
        a, b = widened(x), widened(target)
        return lambda *i: a(*i) - b(*i)

    @compute(name)
    def forward(x: Any, target: Any, reduction: str, *attributes: Any, out: Any) -> Any:
        d = difference(x, target)
        return _reduced_elements(lambda *i: value(d(*i), *attributes), x, reduction, out[0], name)

    @compute(f"{name}_dx")
    def backward(x: Any, target: Any, dy: Any, reduction: str, *attributes: Any, out: Any) -> Any:
        d, grad = difference(x, target), _incoming(dy, x, reduction)
        return te.compute(x.shape, lambda *i: cast(slope(d(*i), *attributes) * grad(*i), out[0].dtype), f"{name}_dx")


_pairwise("mse_loss", lambda d: d * d, lambda d: d + d)
_pairwise("l1_loss", _absolute, _sign)
_pairwise("smooth_l1_loss", _smooth, _smooth_slope)


def _softplus(x: Expr) -> Expr:
    """log(1 + e**x); NaN of NaN."""
    zero = const(x, 0)
    return select(x < zero, zero, x) + _math.log1p(_math.exp(-tirx.abs(x)))


@compute("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any, pos_weight: Any, reduction: str, *, out: Any
) -> Any:
    dtype, logit, wanted = wide(x.dtype), widened(x), widened(target)
    one = tirx.const(1, dtype)

    def value(*i: Any) -> Expr:
        positive = one if pos_weight is None else one + (element(pos_weight, i, dtype) - one) * wanted(*i)
        loss = (one - wanted(*i)) * logit(*i) + positive * _softplus(-logit(*i))
        return loss if weight is None else loss * element(weight, i, dtype)

    return _reduced_elements(value, x, reduction, out[0], "binary_cross_entropy")


@compute("binary_cross_entropy_with_logits_dx")
def binary_cross_entropy_with_logits_dx(
    x: Any, target: Any, dy: Any, weight: Any, pos_weight: Any, reduction: str, *, out: Any
) -> Any:
    dtype, logit, wanted, grad = wide(x.dtype), widened(x), widened(target), _incoming(dy, x, reduction)
    one = tirx.const(1, dtype)

    def value(*i: Any) -> Expr:
        positive = one if pos_weight is None else one + (element(pos_weight, i, dtype) - one) * wanted(*i)
        slope = (one - wanted(*i) - positive * _math.sigmoid(-logit(*i))) * grad(*i)
        return cast(slope if weight is None else slope * element(weight, i, dtype), out[0].dtype)

    return te.compute(x.shape, value, "binary_cross_entropy_dx")


# --- losses over classes


class _Targets:
    """The distribution that each target stands for: how much of each class, times the weight of the class.

    A target that is no class has NaN of everything, one that is ignored has nothing."""

    def __init__(self, target: Any, weight: Any, classes: Any, ignore: int, smoothing: float, dtype: str) -> None:
        self.target, self.weight, self.dtype, self.smoothing = target, weight, dtype, smoothing
        self.classes, self.ignore = classes, ignore
        self.zero, self.nan = tirx.const(0, dtype), tirx.const(math.nan, dtype)

    def index(self, *row: Any) -> Expr:
        return cast(self.target(*row), "int64")

    def counts(self, *row: Any) -> Expr:
        """Whether a target is not the ignored one."""
        return tirx.NE(self.index(*row), tirx.const(self.ignore, "int64"))

    def is_class(self, *row: Any) -> Expr:
        return tirx.all(self.index(*row) >= tirx.const(0, "int64"), self.index(*row) < self.classes)

    def weight_of(self, c: Any) -> Expr:
        return tirx.const(1, self.dtype) if self.weight is None else cast(self.weight(c), self.dtype)

    def own_weight(self, *row: Any) -> Expr:
        """The weight of the right class."""
        known = tirx.if_then_else(self.is_class(*row), self.weight_of(self.index(*row)), self.nan)
        return select(self.counts(*row), known, self.zero)

    def even_share(self) -> Expr:
        """What label smoothing gives to every class."""
        return tirx.const(self.smoothing, self.dtype) / self.classes.astype(self.dtype)

    def amount(self, c: Any, *row: Any) -> Expr:
        """How much of class c there is."""
        known = tirx.const(1 - self.smoothing, self.dtype)
        if self.weight is not None:
            known = known * self.weight_of(c)
        hit = select(tirx.EQ(self.index(*row), cast(_plain(c), "int64")), known, self.zero)
        if self.smoothing:
            hit = hit + self.even_share() * self.weight_of(c)
        return select(self.counts(*row), select(self.is_class(*row), hit, self.nan), self.zero)


def _plain(index: Any) -> Expr:
    """An index as an expression, also that of a reduction."""
    return index.var if isinstance(index, tirx.IterVar) else index


def _class_axis(x: Any) -> int:
    return 0 if len(x.shape) == 1 else 1


def _place(row: tuple[Any, ...], axis: int, c: Any) -> tuple[Any, ...]:
    """The index into x of class c in a row."""
    return (*row[:axis], c, *row[axis:])


def _row_of(i: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*i[:axis], *i[axis + 1 :])


def _targets(shape: Any, target: Any, weight: Any, options: tuple[Any, ...], dtype: str) -> _Targets:
    classes = shape[0 if len(shape) == 1 else 1]
    classes = tirx.const(classes, "int64") if isinstance(classes, int) else cast(classes, "int64")
    _, ignore, smoothing = options
    return _Targets(target, weight, classes, ignore, smoothing, dtype)


def _total_weight(targets: _Targets) -> Expr:
    """What the mean is divided by."""
    axes = _all_axes(targets.target)
    return reduced(targets.target, axes, te.sum, lambda *i: targets.own_weight(*i), "total_weight")(*[0] * len(axes))


def _class_loss(
    log_probability: Value, x: Any, target: Any, weight: Any, options: tuple[Any, ...], out: Any, name: str
) -> Any:
    axis, dtype = _class_axis(x), wide(x.dtype)
    targets = _targets(x.shape, target, weight, options, dtype)
    every = None
    if targets.smoothing:
        every = reduced(x, (axis,), te.sum, lambda *i: targets.weight_of(i[axis]) * log_probability(*i), "every")

    def row_loss(*row: Any) -> Expr:
        own = log_probability(*_place(row, axis, targets.index(*row)))
        known = tirx.if_then_else(targets.is_class(*row), own * targets.weight_of(targets.index(*row)), targets.nan)
        if every is not None:
            rest = every(*_place(row, axis, 0)) * targets.even_share()
            known = known * tirx.const(1 - targets.smoothing, dtype) + rest
        return tirx.if_then_else(targets.counts(*row), -known, targets.zero)

    losses = te.compute(target.shape, row_loss, "losses")
    return _reduce(losses, options[0], lambda: _total_weight(targets), out, name)


@compute("nll_loss")
def nll_loss(x: Any, target: Any, weight: Any, *options: Any, out: Any) -> Any:
    return _class_loss(widened(x), x, target, weight, options, out[0], "nll_loss")


@compute("nll_loss_dx", sizes=("shape",))
def nll_loss_dx(dy: Any, target: Any, weight: Any, shape: Any, *options: Any, out: Any) -> Any:
    dtype, axis = wide(dy.dtype), 0 if len(out[0].shape) == 1 else 1
    targets = _targets(out[0].shape, target, weight, options, dtype)
    grad = _row_gradient(dy, targets, options[0])

    def value(*i: Any) -> Expr:
        row = _row_of(i, axis)
        return cast(-grad(targets.amount(i[axis], *row), *row), out[0].dtype)

    return te.compute(out[0].shape, value, "nll_loss_dx")


def _row_gradient(dy: Any, targets: _Targets, reduction: str) -> Callable[..., Expr]:
    """`scale(value, *row)`: value times the gradient that reaches the row, 0 where the target is ignored."""
    dtype = targets.dtype
    total = _total_weight(targets) if reduction == "mean" else None

    def scale(value: Expr, *row: Any) -> Expr:
        incoming = cast(dy(*row) if reduction == "none" else dy(), dtype)
        result = value * incoming if total is None else value * incoming / total
        return select(targets.counts(*row), result, targets.zero)

    return scale


@compute("cross_entropy")
def cross_entropy(x: Any, target: Any, weight: Any, *options: Any, out: Any) -> Any:
    axis = _class_axis(x)
    shifted, _, total = exponentials(x, axis)
    logs = te.compute(total.shape, lambda *i: _math.log(total(*i)), "log_total")
    return _class_loss(
        lambda *i: shifted(*i) - at(logs, (axis,), i), x, target, weight, options, out[0], "cross_entropy"
    )


@compute("cross_entropy_dx")
def cross_entropy_dx(x: Any, target: Any, dy: Any, weight: Any, *options: Any, out: Any) -> Any:
    axis, dtype = _class_axis(x), wide(x.dtype)
    targets = _targets(x.shape, target, weight, options, dtype)
    _, powers, total = exponentials(x, axis)
    grad = _row_gradient(dy, targets, options[0])
    # The amounts of all classes together: the weight of the right one, unless smoothing brings in the others.
    amounts = reduced(x, (axis,), te.sum, lambda *i: targets.amount(i[axis], *_row_of(i, axis)), "amounts")

    def value(*i: Any) -> Expr:
        row = _row_of(i, axis)
        whole = at(amounts, (axis,), i) if targets.smoothing else targets.own_weight(*row)
        pull = powers(*i) / at(total, (axis,), i) * whole - targets.amount(i[axis], *row)
        return cast(grad(pull, *row), out[0].dtype)

    return te.compute(x.shape, value, "cross_entropy_dx")
