"""TE computes of losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import (
    accumulation_dtype,
    as_int64,
    cast,
    element,
    select,
)
from meta.backend.tvm.te.reduce import (
    Value,
    axes_of,
    count_elements,
    elements_of,
    exponentials,
    read_reduced,
    reduce_axes,
    store_result,
)
from meta.backend.tvm.workarounds.exact import constant
from meta.op.dialect.tvm import Registrar
from meta.op.formulas import SOURCES, formula
from meta.op.registry import get
from meta.op.rules import class_axis

compute = Registrar(SOURCES).compute


def _reduce(losses: Tensor, reduction: str, divisor: Callable[[], Expr], out: TensorSpec, name: str) -> Any:
    """The stored losses reduced: each, their sum, or their sum divided by `divisor()`."""
    if reduction == "none":
        return te.compute(losses.shape, lambda *i: cast(losses(*i), out.dtype), name)
    axes = axes_of(None, len(losses.shape))
    total = reduce_axes(losses, axes, te.sum, lambda *i: losses(*i), "total")
    return store_result(total, axes, out, name, lambda v: v / divisor() if reduction == "mean" else v)


def _reduce_elements(value: Value, like: Tensor, reduction: str, out: TensorSpec, name: str) -> Any:
    """The losses `value(*index)` over the shape of `like`, reduced without storing them."""
    if reduction == "none":
        return te.compute(like.shape, lambda *i: cast(value(*i), out.dtype), name)
    axes = axes_of(None, len(like.shape))
    divisor = count_elements(like, axes, accumulation_dtype(out.dtype))
    total = reduce_axes(like, axes, te.sum, value, "total")
    return store_result(total, axes, out, name, lambda v: v / divisor if reduction == "mean" else v)


def _element_gradient(dy: Tensor, like: Tensor, reduction: str) -> Value:
    """The gradient with respect to each loss, over the shape of `like`."""
    dtype = accumulation_dtype(dy.dtype)
    if reduction == "none":
        return elements_of(dy)
    if reduction == "sum":
        return lambda *_: cast(dy(), dtype)
    return lambda *_: cast(dy(), dtype) / count_elements(like, axes_of(None, len(like.shape)), dtype)


# --- losses of a prediction and a target per element: the loss of each by the formula of the decomposition


def _value(loss: Callable[..., Expr], names: tuple[str, ...], x: Tensor, *args: Any) -> Value:
    """The loss of each element, or the gradient that reaches it. args: the further arguments of the operator."""
    arguments: dict[str, Any] = dict(zip(names, (x, *args), strict=True))
    dtype, reduction = accumulation_dtype(x.dtype), arguments["reduction"]
    arguments["reduction"] = "none"

    def argument(name: str, value: Any, index: tuple[Any, ...]) -> Any:
        if name == "dy":
            return _element_gradient(value, x, reduction)(*index)
        return element(value, index, dtype) if hasattr(value, "shape") else value

    return lambda *i: loss(*(argument(name, value, i) for name, value in arguments.items()))


def _elementwise_loss(name: str) -> None:
    loss, names = formula(name), get(name).schema.names
    reduction = names.index("reduction")

    @compute(name, constants=(0,))
    def run(*args: Any, out: Outs) -> Any:
        return _reduce_elements(_value(loss, names, *args), args[0], args[reduction], out[0], name)


def _elementwise_gradient(name: str) -> None:
    gradient, names = formula(name), get(name).schema.names

    @compute(name, constants=(0,))
    def run(*args: Any, out: Outs) -> Any:
        value = _value(gradient, names, *args)
        return te.compute(args[0].shape, lambda *i: cast(value(*i), out[0].dtype), name)


for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
    _elementwise_loss(_name)
for _name in ("mse_loss_dx", "l1_loss_dx", "smooth_l1_loss_dx", "binary_cross_entropy_with_logits_dx"):
    _elementwise_gradient(_name)


# --- losses over classes


class _Targets:
    """The class distribution of each target, times the class weights.

    Invalid targets give NaN, ignored ones 0."""

    def __init__(self, target: Any, weight: Any, classes: Any, ignore: int, smoothing: float, dtype: str) -> None:
        self.target, self.weight, self.dtype, self.smoothing = target, weight, dtype, smoothing
        self.classes, self.ignore = classes, ignore
        self.zero, self.nan = tirx.const(0, dtype), tirx.const(math.nan, dtype)

    def index(self, *row: Any) -> Expr:
        return as_int64(self.target(*row))

    def is_counted(self, *row: Any) -> Expr:
        """Whether a target differs from ignore_index."""
        return tirx.NE(self.index(*row), constant(self.ignore, "int64"))

    def is_class(self, *row: Any) -> Expr:
        return tirx.all(self.index(*row) >= tirx.const(0, "int64"), self.index(*row) < self.classes)

    def weight_of(self, c: Any) -> Expr:
        return tirx.const(1, self.dtype) if self.weight is None else cast(self.weight(c), self.dtype)

    def target_weight(self, *row: Any) -> Expr:
        """The weight of the target class."""
        weight = tirx.if_then_else(self.is_class(*row), self.weight_of(self.index(*row)), self.nan)
        return select(self.is_counted(*row), weight, self.zero)

    def smoothing_share(self) -> Expr:
        """The share that label smoothing gives to every class."""
        return constant(self.smoothing, self.dtype) / self.classes.astype(self.dtype)

    def amount(self, c: Any, *row: Any) -> Expr:
        """The share of class c times its weight."""
        target_share = constant(1 - self.smoothing, self.dtype)
        if self.weight is not None:
            target_share = target_share * self.weight_of(c)
        share = select(tirx.EQ(self.index(*row), cast(_as_expr(c), "int64")), target_share, self.zero)
        if self.smoothing:
            share = share + self.smoothing_share() * self.weight_of(c)
        return select(self.is_counted(*row), select(self.is_class(*row), share, self.nan), self.zero)


def _as_expr(index: Any) -> Expr:
    """An index as an expression: the variable of a reduction axis."""
    return index.var if isinstance(index, tirx.IterVar) else index


def _insert_class(row: tuple[Any, ...], axis: int, c: Any) -> tuple[Any, ...]:
    """The index into x of class c in a row: c inserted at `axis`."""
    return (*row[:axis], c, *row[axis:])


def _drop_class(i: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """The row of an index into x: the index without `axis`."""
    return (*i[:axis], *i[axis + 1 :])


def _targets(shape: Any, target: Any, weight: Any, options: tuple[Any, ...], dtype: str) -> _Targets:
    classes = shape[class_axis(len(shape))]
    classes = tirx.const(classes, "int64") if isinstance(classes, int) else cast(classes, "int64")
    _, ignore, smoothing = options
    return _Targets(target, weight, classes, ignore, smoothing, dtype)


def _total_weight(targets: _Targets) -> Expr:
    """The sum of the weights of the targets, by which the mean is divided."""
    axes = axes_of(None, len(targets.target.shape))
    return reduce_axes(targets.target, axes, te.sum, lambda *i: targets.target_weight(*i), "total_weight")(
        *[0] * len(axes)
    )


def _class_loss(
    log_probability: Value, x: Tensor, target: Tensor, weight: Any, options: tuple[Any, ...], out: TensorSpec, name: str
) -> Any:
    axis, dtype = class_axis(len(x.shape)), accumulation_dtype(x.dtype)
    targets = _targets(x.shape, target, weight, options, dtype)
    class_total = None
    if targets.smoothing:
        class_total = reduce_axes(
            x, (axis,), te.sum, lambda *i: targets.weight_of(i[axis]) * log_probability(*i), "every"
        )

    def row_loss(*row: Expr) -> Expr:
        target_log = log_probability(*_insert_class(row, axis, targets.index(*row)))
        value = tirx.if_then_else(
            targets.is_class(*row), target_log * targets.weight_of(targets.index(*row)), targets.nan
        )
        if class_total is not None:
            smoothed = class_total(*_insert_class(row, axis, 0)) * targets.smoothing_share()
            value = value * constant(1 - targets.smoothing, dtype) + smoothed
        return tirx.if_then_else(targets.is_counted(*row), -value, targets.zero)

    losses = te.compute(target.shape, row_loss, "losses")
    return _reduce(losses, options[0], lambda: _total_weight(targets), out, name)


@compute("nll_loss", constants=(0,), lift=("ignore_index",))
def nll_loss(x: Tensor, target: Tensor, weight: Any, *options: Any, out: Outs) -> Any:
    return _class_loss(elements_of(x), x, target, weight, options, out[0], "nll_loss")


@compute("nll_loss_dx", sizes=("shape",), constants=(0,), lift=("ignore_index",))
def nll_loss_dx(dy: Tensor, target: Any, weight: Any, shape: Any, *options: Any, out: Outs) -> Any:
    dtype, axis = accumulation_dtype(dy.dtype), class_axis(len(out[0].shape))
    targets = _targets(out[0].shape, target, weight, options, dtype)
    grad = _row_gradient(dy, targets, options[0])

    def value(*i: Expr) -> Expr:
        row = _drop_class(i, axis)
        return cast(-grad(targets.amount(i[axis], *row), *row), out[0].dtype)

    return te.compute(out[0].shape, value, "nll_loss_dx")


def _row_gradient(dy: Tensor, targets: _Targets, reduction: str) -> Callable[..., Expr]:
    """`scale(value, *row)`: value times the gradient of the loss of the row; 0 where the target is ignored."""
    dtype = targets.dtype
    total = _total_weight(targets) if reduction == "mean" else None

    def scale(value: Expr, *row: Expr) -> Expr:
        incoming = cast(dy(*row) if reduction == "none" else dy(), dtype)
        result = value * incoming if total is None else value * incoming / total
        return select(targets.is_counted(*row), result, targets.zero)

    return scale


@compute("cross_entropy", constants=(0,), lift=("ignore_index",))
def cross_entropy(x: Tensor, target: Tensor, weight: Any, *options: Any, out: Outs) -> Any:
    axis = class_axis(len(x.shape))
    shifted, _, total = exponentials(x, axis)
    logs = te.compute(total.shape, lambda *i: te_math.log(total(*i)), "log_total")
    return _class_loss(
        lambda *i: shifted(*i) - read_reduced(logs, (axis,), i), x, target, weight, options, out[0], "cross_entropy"
    )


@compute("cross_entropy_dx", constants=(0,), lift=("ignore_index",))
def cross_entropy_dx(x: Tensor, target: Any, dy: Tensor, weight: Any, *options: Any, out: Outs) -> Any:
    axis, dtype = class_axis(len(x.shape)), accumulation_dtype(x.dtype)
    targets = _targets(x.shape, target, weight, options, dtype)
    _, exps, total = exponentials(x, axis)
    grad = _row_gradient(dy, targets, options[0])
    # The amounts summed over the classes; without smoothing that is the weight of the target class.
    amounts = reduce_axes(x, (axis,), te.sum, lambda *i: targets.amount(i[axis], *_drop_class(i, axis)), "amounts")

    def value(*i: Expr) -> Expr:
        row = _drop_class(i, axis)
        row_amount = read_reduced(amounts, (axis,), i) if targets.smoothing else targets.target_weight(*row)
        difference = exps(*i) / read_reduced(total, (axis,), i) * row_amount - targets.amount(i[axis], *row)
        return cast(grad(difference, *row), out[0].dtype)

    return te.compute(x.shape, value, "cross_entropy_dx")
