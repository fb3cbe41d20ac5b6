"""Large cross entropies on GPUs as reductions of rows and elementwise operators.

As one kernel, the gradient of cross_entropy reads its logits three times in float32 and counts the labels again for
every row (4096 rows of 30522 classes took 0.94 ms, and the casts around it 0.35). Taken apart, the loss and
its gradient share the maximum and the sum of each row, and the elementwise rest fuses with the casts on both sides.

Logits that `align_products` cut out of a product with longer rows are read from that product, and the gradient is
written to rows of that length, with zeros behind the classes, for the products that take it:

    y = strided_slice(p)                      x = where(class < classes, p, -inf)
    loss(y); matmul(pad(loss_dx(y)), w)  =>   loss(x); matmul(loss_dx(x) * (class < classes), w)
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from meta.device import Device
from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, Expr
from meta.ir.type import TensorType
from meta.modes import checks_always
from meta.op.registry import get
from meta.passes.cuts import find_cut, has_zeros_behind
from meta.passes.rewriting import Scope, by_op, emit, rewrite_pass

_LEAST_ELEMENTS: Final = 1 << 22
"""Elements of the logits, at least: fewer take less time than starting several kernels."""


class _LossRows:
    """The parts that a loss and its gradient share, one value for each row of the logits."""

    def __init__(self, scope: Scope, x: Any, target: Any, ignore_index: int) -> None:
        self.scope, self.call = scope, partial(emit, scope)
        self.rows, self.classes = x.type.shape
        self.device: Device = x.type.device
        self.source = _in_memory(scope, x)
        self.columns: int = self.source.type.shape[1]
        x = self.source if self.source.type.dtype == "float32" else self.call("cast", self.source, "float32")
        if self.columns != self.classes:  # sums and products, because the branches of `where` would delay loads
            x = self.call("add", x, self.by_column(0.0, -math.inf))
        self.highest = self.call("max", x, (1,), True)
        self.powers = self.call("exp", self.call("subtract", x, self.highest))
        self.total = self.call("sum", self.powers, (1,), True)
        at_least, below = self.call("greater_equal", target, 0), self.call("less", target, self.classes)
        is_label = self.call("logical_and", at_least, below)
        self.label = self.call("where", is_label, target, 0)
        self.counted = self.call("not_equal", target, ignore_index)
        weight = self.call("where", is_label, self.full(1.0), self.full(math.nan))
        self.weight = self.call("where", self.counted, weight, self.full(0.0))
        """1 for a label, 0 for one that is ignored, NaN for any other."""

    def full(self, value: float) -> Any:
        return self.call("full", (self.rows,), value, "float32", self.device)

    def column(self, values: Any) -> Any:
        """A value of each row as a column."""
        return self.call("reshape", values, (self.rows, 1))

    def gathered(self) -> Any:
        """The logits of the labels, as a column."""
        picked = self.call("gather", self.source, 1, self.column(self.label))
        return picked if picked.type.dtype == "float32" else self.call("cast", picked, "float32")

    def numbers(self) -> Any:
        """The number of each column; 32 bits compare faster than 64."""
        return self.call("arange", 0, self.columns, 1, self.number_dtype, self.device)

    @property
    def number_dtype(self) -> str:
        return "int32" if self.columns < 1 << 31 else "int64"

    def by_column(self, of_class: float, other: float) -> Any:
        """One number for the columns of classes, another one for those behind them."""
        return self.call("where", self.call("less", self.numbers(), self.classes), of_class, other)

    def share(self, values: Any, reduction: str) -> Any:
        """Values of the rows, divided by the number of labels for the mean."""
        return (
            self.call("divide", values, self.call("sum", self.weight, None, False)) if reduction == "mean" else values
        )


def _loss(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The loss of a row: log(total) - (x[label] - highest)."""
    call = _large(binding.value)
    if call is None:
        return None
    x, target, _, reduction, ignore_index, _ = call.args
    rows = _LossRows(scope, x, target, ignore_index)
    picked = rows.gathered()
    losses = rows.call("subtract", rows.call("log", rows.total), rows.call("subtract", picked, rows.highest))
    losses = rows.call("multiply", rows.call("reshape", losses, (rows.rows,)), rows.weight)
    losses = rows.call("where", rows.counted, losses, rows.full(0.0))
    if reduction != "none":
        losses = rows.share(rows.call("sum", losses, None, False), reduction)
    return scope.call_expr(get("reshape"), (losses, call.type.shape))  # type: ignore[union-attr]


def _gradient(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The gradient: exp(x - highest) * (scale / total) - one_hot(label) * scale."""
    call = _large(binding.value)
    if call is None:
        return None
    x, target, dy, _, reduction, ignore_index, _ = call.args
    rows = _LossRows(scope, x, target, ignore_index)
    scale = rows.share(rows.call("multiply", rows.weight, dy), reduction)
    scale = rows.column(rows.call("where", rows.counted, scale, rows.full(0.0)))
    shares = rows.call("multiply", rows.powers, rows.call("divide", scale, rows.total))
    label = rows.column(rows.call("cast", rows.label, rows.number_dtype))
    hits = rows.call("multiply", rows.call("cast", rows.call("equal", rows.numbers(), label), "float32"), scale)
    if rows.columns == rows.classes:
        return scope.call_expr(get("subtract"), (shares, hits))
    gradient = rows.call("multiply", rows.call("subtract", shares, hits), rows.by_column(1.0, 0.0))
    return scope.call_expr(get("strided_slice"), (gradient, (0, 0), x.type.shape, ()))


def _in_memory(scope: Scope, x: Any) -> Any:
    """The logits in the dtype that they have in memory, perhaps with more columns than classes; x itself if no operator
    before it can be computed anew."""
    cut = find_cut(scope, x)
    if cut is not None and cut.dtypes in ((), ("float32",)) and cut.whole.type.dtype in ("float32", *HALVES):
        return cut.whole
    cast = scope.definition(x)
    source: Any = cast.args[0] if isinstance(cast, Call) and cast.op_name == "cast" else x
    return source if source.type.dtype in HALVES else x


def _pad(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """Zeros in place of those behind the classes: the matrix with both."""
    call = binding.value
    assert isinstance(call, Call)
    x, widths, value, mode = call.args
    cut = find_cut(scope, x) if len(widths) == 4 and not any(widths[:3]) and (value, mode) == (0, "constant") else None
    if cut is None or cut.columns != x.type.shape[1] + widths[3]:
        return None
    return cut.cast(scope) if has_zeros_behind(scope, cut.whole, x.type.shape[1]) else None


def _sum_to(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The sums of the first columns: the first sums of all columns."""
    call = binding.value
    assert isinstance(call, Call)
    x, shape = call.args
    cut = find_cut(scope, x) if len(shape) == 1 else None
    if cut is None or shape != x.type.shape[-1:]:
        return None
    sums = scope.call(get("sum_to"), (cut.cast(scope), (cut.columns,)))
    return scope.call_expr(get("strided_slice"), (sums, (0,), shape, ()))


def _large(value: Any) -> Call | None:
    """A call whose logits are a large float32 matrix on a GPU, without weights and smoothing; None for others."""
    if not isinstance(value, Call) or value.dialect is not None or value.attrs or checks_always():
        return None
    x, weight, smoothing = value.args[0], value.args[-4], value.args[-1]
    kind = x.type
    if weight is not None or smoothing or not isinstance(kind, TensorType) or kind.dtype != "float32":
        return None
    is_large = kind.ndim == 2 and isinstance(kind.size, int) and kind.size >= _LEAST_ELEMENTS
    return value if is_large and kind.device.kind == "cuda" else None


_TABLE: Final = {"cross_entropy": _loss, "cross_entropy_dx": _gradient, "pad": _pad, "sum_to": _sum_to}

expand_losses = rewrite_pass(
    "expand_losses",
    "Take large cross entropies on GPUs and their gradients apart into reductions of rows and elementwise operators.",
    by_op(_TABLE),
    looks_for=tuple(_TABLE),
    device="cuda",
)
