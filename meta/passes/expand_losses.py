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

from typing import Any, Final

from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, Expr
from meta.ir.type import TensorType
from meta.modes import checks_always
from meta.op.decompose.loss import Logits
from meta.op.registry import get
from meta.passes.cuts import find_cut, has_zeros_behind
from meta.passes.rewriting import Scope, by_op, rewrite_pass
from meta.tracing.emitter import recording
from meta.tracing.symbol import Symbol

_LEAST_ELEMENTS: Final = 1 << 22
"""Elements of the logits, at least: fewer take less time than starting several kernels."""


def _loss(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = _large(binding.value)
    if call is None:
        return None
    x, target, *rest = call.args
    with recording(scope):
        return _logits(scope, x).loss(Symbol(target), *rest).atom


def _gradient(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The gradient, with zeros behind the classes, which are cut off again."""
    call = _large(binding.value)
    if call is None:
        return None
    x, target, dy, *rest = call.args
    with recording(scope):
        gradient = _logits(scope, x).gradient(Symbol(target), Symbol(dy), *rest)
    if gradient.shape == x.type.shape:
        return gradient.atom
    return scope.call_expr(get("strided_slice"), (gradient.atom, (0, 0), x.type.shape, ()))


def _logits(scope: Scope, x: Any) -> Logits:
    return Logits(Symbol(_in_memory(scope, x)), 1, x.type.shape[1])


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
