"""Large cross entropies on GPUs as reductions of rows and elementwise operators.

As one kernel, the gradient of cross_entropy reads its logits three times in float32 and counts the labels again for
every row (4096 rows of 30522 classes took 0.94 ms, and the casts around it 0.35). Taken apart, the loss and
its gradient share the maximum and the sum of each row, and the elementwise rest fuses with the casts on both sides.

Logits that `align_products` cut out of a product with longer rows are read from that product, and the gradient is
written to rows of that length, with zeros behind the classes, for the products that take it:

    y = strided_slice(p)                      x = where(class < classes, p, -inf)
    loss(y); matmul(pad(loss_dx(y)), w)  =>   loss(x); matmul(loss_dx(x) * (class < classes), w)

Losses of logarithms become a gather, which reads one element of each row where the logarithms are computed by
elementwise operators, and their gradients a comparison with the label, in the operators that read them.
"""

from __future__ import annotations

from typing import Any, Final

from meta.dtype import HALVES
from meta.ir.expr import ATOMS, Atom, Binding, Call, Expr
from meta.ir.type import TensorType
from meta.modes import checks_always
from meta.op.decompose.loss import Logits
from meta.op.registry import Op, get
from meta.passes.cuts import find_cut, has_zeros_behind
from meta.passes.rewriting import VIEWS, Scope, by_op, emit, is_elementwise, plain_call, rewrite_pass
from meta.tracing.emitter import emit_decomposition, recording
from meta.tracing.symbol import Symbol

LEAST_ELEMENTS: Final = 1 << 22
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


def _of_logarithms(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """nll_loss and its gradient, which has no x."""
    call = _large(binding.value)
    return None if call is None else emit_decomposition(scope, call)


def _gather(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """Elements of each row of a large matrix that elementwise operators compute: the same of their operands."""
    call = plain_call(binding.value)
    if call is None:
        return None
    x, axis, indices = call.args
    kinds = x.type, indices.type
    if axis % kinds[0].ndim != kinds[0].ndim - 1 or kinds[0].shape[:-1] != kinds[1].shape[:-1]:
        return None
    if not _is_large(kinds[0]) or _elementwise(scope, x) is None:
        return None
    return _picked(scope, x, call.args[1:])


def _elementwise(scope: Scope, x: Any) -> Call | None:
    """The elementwise operator that computes x, if its operands have the rows of x, one element of each, or none."""
    call = plain_call(scope.definition(x))
    if call is None or not isinstance(call.op, Op) or call.op.pattern not in ("elemwise", "broadcast"):
        return None
    shapes = [a.type.shape for a in call.args if isinstance(a, ATOMS) and isinstance(a.type, TensorType)]
    return call if all(s in ((), x.type.shape, (*x.type.shape[:-1], 1)) for s in shapes) else None


def _before_view(scope: Scope, x: Any) -> Any:
    """x = reshape(f(y)) as f(reshape(y)), for an elementwise operator of tensors of one shape; else x itself."""
    view = plain_call(scope.definition(x), *VIEWS)
    source: Any = None if view is None else view.args[0]
    call = None if view is None else plain_call(scope.definition(source))
    if call is None or not is_elementwise(call, source.type):
        return x
    tensors: list[Any] = [a for a in call.args if isinstance(a, ATOMS)]
    if any(a.type.shape != source.type.shape for a in tensors):
        return x
    args = [emit(scope, "reshape", a, x.type.shape) if isinstance(a, ATOMS) else a for a in call.args]
    return scope.call(call.op, tuple(args))


def _picked(scope: Scope, x: Any, place: tuple[Any, ...]) -> Atom:
    x = _before_view(scope, x)
    call = _elementwise(scope, x)
    if call is None:
        return scope.call(get("gather"), (x, *place))

    def operand(a: Any) -> Any:
        is_whole = isinstance(a, ATOMS) and isinstance(a.type, TensorType) and a.type.shape == x.type.shape
        return _picked(scope, a, place) if is_whole else a

    return scope.call(call.op, tuple(map(operand, call.args)))


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
    call = plain_call(value)
    if call is None or not isinstance(call.op, Op) or checks_always():
        return None
    index = call.op.schema.index
    if call.args[index["weight"]] is not None or call.args[index["label_smoothing"]]:
        return None
    kind: Any = call.args[0].type if "x" in index else call.type
    return call if _is_large(kind) and kind.dtype == "float32" else None


def _is_large(kind: Any) -> bool:
    """Whether a tensor is a large matrix on a GPU."""
    if not isinstance(kind, TensorType) or kind.ndim != 2 or kind.device.kind != "cuda":
        return False
    return isinstance(kind.size, int) and kind.size >= LEAST_ELEMENTS


_TABLE: Final = {"cross_entropy": _loss, "cross_entropy_dx": _gradient, "gather": _gather, "nll_loss": _of_logarithms,
                 "nll_loss_dx": _of_logarithms, "pad": _pad, "sum_to": _sum_to}  # fmt: skip

expand_losses = rewrite_pass(
    "expand_losses",
    "Take large cross entropies on GPUs and their gradients apart into reductions of rows and elementwise operators.",
    by_op(_TABLE),
    looks_for=tuple(_TABLE),
    device="cuda",
)
