"""Algebraic simplification: one small rule an identity, in a table by operator.

Every rule keeps the type of the value, and every bit of it: identities of real numbers that floats break (x * 0, x / x,
x + 0.0 for -0.0, reordered sums, a cast back from a narrower dtype) are not applied.
"""

from __future__ import annotations

import math
from typing import Any

from meta import dtype as dtypes
from meta.eager.ndarray import NDArray
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, Tuple, TupleGetItem
from meta.ir.printer import to_array
from meta.ir.type import TensorType, TupleType
from meta.op.decompose.loss import sum_of_nll_loss_dx
from meta.op.registry import Op, get
from meta.op.rules import class_axis, moved, swapped
from meta.passes.rewriting import VIEWS, Rule, Scope, by_op, rewrite_pass
from meta.tracing import function_op
from meta.tracing.emitter import recording
from meta.tracing.function_op import FunctionOp, forward_results
from meta.tracing.symbol import Symbol

Answer = Expr | Atom | None


def call_of(binding: Binding) -> Call:
    """The call that a binding has, as rules by operator expect it."""
    assert isinstance(binding.value, Call)
    return binding.value


def producer(scope: Scope, atom: Any, *ops: str) -> Call | None:
    """The call that computed `atom`, if it is one of `ops`."""
    value = scope.definition(atom)
    return value if isinstance(value, Call) and value.op_name in ops else None


def _is_number(scope: Scope, value: Any, number: float) -> bool:
    """Whether an operand is `number` everywhere, with its sign: a Python scalar, a tensor full of it, or a small
    constant."""
    if isinstance(value, (int, float)):
        return _same_number(value, number)
    if isinstance(value, Constant):
        size = value.type.size
        return isinstance(size, int) and 0 < size <= 64 and all(_same_number(v, number) for v in _host(value).flat)
    fill = scope.definition(value)
    if not isinstance(fill, Call) or not isinstance(fill.op, Op):
        return False
    if fill.op.name in ("full", "full_like"):
        filled = fill.args[fill.op.schema.index["fill_value"]]
        return isinstance(filled, (int, float)) and _same_number(filled, number)
    if fill.op.name in ("zeros", "zeros_like"):
        return _same_number(0.0, number)
    return fill.op.name in ("ones", "ones_like") and number == 1


def _same_number(value: float, number: float) -> bool:
    return bool(value == number) and math.copysign(1.0, value) == math.copysign(1.0, number)


def _host(constant: Constant) -> Any:
    value = constant.value
    return value.numpy() if isinstance(value, NDArray) else to_array(value)


def _identity_operand(number: float, *, left: bool) -> Rule:
    """`x op number` (and `number op x` when `left`) is x, where the result has x's type."""

    def rule(binding: Binding, scope: Scope) -> Answer:
        x1, x2 = call_of(binding).args[:2]
        for x, other in ((x1, x2), (x2, x1)) if left else ((x1, x2),):
            if getattr(x, "type", None) == binding.var.type and _is_number(scope, other, number):
                return x
        return None

    return rule


def _zero_operand(number: float, *, left: bool) -> Rule:
    """x + 0 and x - 0 are x for integers; for floats x + -0.0 and x - 0.0 are, `number` being that zero."""
    of_floats, of_integers = _identity_operand(number, left=left), _identity_operand(0, left=left)

    def rule(binding: Binding, scope: Scope) -> Answer:
        kind = binding.var.type
        is_float = isinstance(kind, TensorType) and dtypes.is_float(kind.dtype)
        return (of_floats if is_float else of_integers)(binding, scope)

    return rule


def _double(op: str) -> Rule:
    """`op(op(x))` is x."""

    def rule(binding: Binding, scope: Scope) -> Answer:
        inner = producer(scope, call_of(binding).args[0], op)
        return inner.args[0] if inner else None

    return rule


def _same_type(binding: Binding, scope: Scope) -> Answer:
    """A change to the shape, dtype or device that the operand already has."""
    del scope
    x = call_of(binding).args[0]
    return x if x.type == binding.var.type else None


def _one_rank(binding: Binding, scope: Scope) -> Answer:
    """A collective of one rank is its operand."""
    del scope
    call = call_of(binding)
    assert isinstance(call.op, Op)
    arguments = dict(zip(call.op.schema.names, call.args, strict=True))
    return arguments["x"] if arguments["ranks"] == 1 and arguments.get("pairs", True) else None


def _cast_of_cast(binding: Binding, scope: Scope) -> Answer:
    """cast(cast(x, wide), dtype) is cast(x, dtype) when every value of x exists in `wide`; narrowing casts stay."""
    call = call_of(binding)
    inner = producer(scope, call.args[0], "cast")
    if inner is None:
        return None
    x: Any = inner.args[0]
    wide = inner.args[1]
    if not _lossless(x.type.dtype, wide):
        return None
    return x if x.type == call.type else scope.call_expr(call.op, (x, call.args[1]))


def _cast_of_view(binding: Binding, scope: Scope) -> Answer:
    """A narrowing cast(reshape(x)) is reshape(cast(x)), so that casts of one tensor in several shapes are one. A
    widening one stays with the operator that takes it, to be fused with it."""
    call = call_of(binding)
    inner = producer(scope, call.args[0], *VIEWS)
    if inner is None or not isinstance(call.type, TensorType):
        return None
    if dtypes.itemsize(call.type.dtype) >= dtypes.itemsize(inner.type.dtype):  # type: ignore[union-attr]
        return None
    return scope.call_expr(get("reshape"), (scope.call(call.op, (inner.args[0], call.args[1])), call.type.shape))


def _lossless(narrow: str, wide: str) -> bool:
    """Whether every value of dtype `narrow` is a value of `wide`."""
    if narrow == wide or narrow == "bool":
        return True
    if dtypes.is_float(wide):
        if dtypes.is_float(narrow):
            return dtypes.promote(narrow, wide) == wide
        low, high = dtypes.int_range(narrow)
        return max(-low, high).bit_length() <= dtypes.significand_bits(wide) and (wide != "float16" or high <= 65504)
    if dtypes.is_float(narrow):
        return False
    (low, high), (lowest, highest) = dtypes.int_range(narrow), dtypes.int_range(wide)
    return lowest <= low and high <= highest


def _view_of_view(binding: Binding, scope: Scope) -> Answer:
    """Two changes of shape are one reshape, or none."""
    call = call_of(binding)
    assert isinstance(call.type, TensorType)
    for op in VIEWS:
        inner = producer(scope, call.args[0], op)
        if inner is not None:
            x = inner.args[0]
            return x if x.type == call.type else scope.call_expr(get("reshape"), (x, call.type.shape))
    return None


def _like(op: str) -> Rule:
    """`op_like(x, like)` is `op(x, ...)` with the dtype or shape of `like`, so that its value is not needed."""

    def rule(binding: Binding, scope: Scope) -> Answer:
        call = call_of(binding)
        assert isinstance(call.type, TensorType)
        return scope.call_expr(get(op), (call.args[0], call.type.dtype if op == "cast" else call.type.shape))

    return rule


def _transpose_of_transpose(binding: Binding, scope: Scope) -> Answer:
    """Two permutations are one; the identity is none."""
    call = call_of(binding)
    ndim = call.args[0].type.ndim
    axes = _axes(call)
    inner = producer(scope, call.args[0], "transpose")
    x = call.args[0] if inner is None else inner.args[0]
    if inner is not None:
        first = _axes(inner)
        axes = tuple(first[a] for a in axes)
    if axes == tuple(range(ndim)):
        return x
    return None if inner is None else scope.call_expr(get("transpose"), (x, axes))


def _axes(call: Call) -> tuple[int, ...]:
    """Which axis of the operand each axis of a transpose's result is."""
    ndim = call.args[0].type.ndim
    axes = call.args[1]
    return tuple(range(ndim))[::-1] if axes is None else tuple(a % ndim for a in axes)


def _as_transpose(binding: Binding, scope: Scope) -> Answer:
    """swap_axis and moveaxis as transposes, which the other rules handle."""
    call = call_of(binding)
    ndim = call.args[0].type.ndim
    x, first, second = call.args
    order = swapped if call.op_name == "swap_axis" else moved
    axes = order(first, second, ndim)
    return scope.call_expr(get("transpose"), (x, tuple(axes)))


def _transposed_operand(binding: Binding, scope: Scope) -> Answer:
    """A matmul of a matrix with its last two axes swapped takes the matrix and a flag."""
    call = call_of(binding)
    args = list(call.args)
    changed = False
    for i in (0, 1):
        inner = producer(scope, args[i], "transpose")
        if inner is None:
            continue
        ndim = args[i].type.ndim
        exchanged = (*range(ndim - 2), ndim - 1, ndim - 2)
        if _axes(inner) == exchanged:
            args[i], args[i + 2], changed = inner.args[0], not args[i + 2], True
    return scope.call_expr(call.op, tuple(args)) if changed else None


def _broadcast_operand(binding: Binding, scope: Scope) -> Answer:
    """An elementwise operator broadcasts: a broadcast_to of an operand to the shape of the result is dropped."""
    call = call_of(binding)
    for i in (0, 1):
        inner = producer(scope, call.args[i], "broadcast_to")
        other = getattr(call.args[1 - i], "type", None)
        if inner is None or not isinstance(other, TensorType):
            continue
        if isinstance(call.type, TensorType) and other.shape == call.type.shape:
            x = inner.args[0]
            return scope.call_expr(call.op, (x, call.args[1]) if i == 0 else (call.args[0], x))
    return None


def _sum_of_class(binding: Binding, scope: Scope) -> Answer:
    """The sum of the gradient of nll_loss over the classes: the element at the target."""
    x, axis, keepdims = call_of(binding).args
    gradient = producer(scope, x, "nll_loss_dx")
    if gradient is None or axis not in ((class_axis(x.type.ndim),), (class_axis(x.type.ndim) - x.type.ndim,)):
        return None
    dy, target, weight, shape, reduction, ignored, smoothing = gradient.args
    if smoothing or gradient.dialect is not None or gradient.attrs:
        return None
    with recording(scope):
        weight = None if weight is None else Symbol(weight)
        total = sum_of_nll_loss_dx(Symbol(dy), Symbol(target), weight, shape, reduction, ignored)
        return total.atom if keepdims else scope.call_expr(get("squeeze"), (total.atom, axis))


def _only_operand(binding: Binding, scope: Scope) -> Answer:
    """A concatenation of one tensor is that tensor."""
    del scope
    xs = call_of(binding).args[0]
    return xs[0] if len(xs) == 1 else None


def _first_of(*rules: Rule) -> Rule:
    def rule(binding: Binding, scope: Scope) -> Answer:
        for each in rules:
            answer = each(binding, scope)
            if answer is not None:
                return answer
        return None

    return rule


def _field_of_tuple(binding: Binding, scope: Scope) -> Answer:
    """A field of a tuple that was just built is the field."""
    value = binding.value
    if not isinstance(value, TupleGetItem):
        return None
    built = scope.definition(value.value)
    return built.fields[value.index] if isinstance(built, Tuple) else None


def _base_level(rule: Rule) -> Rule:
    """`rule` on calls without a dialect and attributes, where it keeps the type."""

    def run(binding: Binding, scope: Scope) -> Answer:
        call = call_of(binding)
        answer = rule(binding, scope) if call.dialect is None and not call.attrs else None
        return answer if answer is None or answer.type == call.type else None

    return run


_ELEMENTWISE = (
    "add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "maximum", "minimum", "atan2",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip

_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_zero_operand(-0.0, left=True),),
    "subtract": (_zero_operand(0.0, left=False),),
    "multiply": (_identity_operand(1, left=True),),
    "divide": (_identity_operand(1, left=False),),
    "power": (_identity_operand(1, left=False),),
    "negative": (_double("negative"),),
    "logical_not": (_double("logical_not"),),
    "cast": (_same_type, _cast_of_cast, _cast_of_view),
    "cast_like": (_like("cast"),),
    "reshape": (_same_type, _view_of_view),
    "reshape_like": (_like("reshape"),),
    "squeeze": (_same_type, _view_of_view),
    "expand_dims": (_same_type, _view_of_view),
    "broadcast_to": (_same_type,),
    "broadcast_to_like": (_like("broadcast_to"),),
    "sum_to": (_same_type,),
    "device_copy": (_same_type,),
    "all_reduce": (_one_rank,),
    "all_reduce_when": (_one_rank,),
    "all_gather": (_one_rank,),
    "reduce_scatter": (_one_rank,),
    "broadcast_from": (_one_rank,),
    "reduce_to": (_one_rank,),
    "all_to_all": (_one_rank,),
    "send_receive": (_one_rank,),
    "barrier": (_one_rank,),
    "copy": (_same_type,),
    "transpose": (_transpose_of_transpose,),
    "swap_axis": (_as_transpose,),
    "moveaxis": (_as_transpose,),
    "matmul": (_transposed_operand,),
    "concatenate": (_only_operand,),
    "sum": (_sum_of_class,),
}
TABLE: dict[str, Rule] = {
    name: _base_level(_first_of(*_RULES.get(name, ()), *([_broadcast_operand] if name in _ELEMENTWISE else [])))
    for name in dict.fromkeys((*_RULES, *_ELEMENTWISE))
}

simplify = rewrite_pass(
    "simplify",
    "Apply algebraic identities (see TABLE): neutral operands, double negation, casts, changes of shape and transposes "
    "of each other, transposes into matmul, explicit broadcasts into elementwise operators, fields of built tuples.",
    by_op(TABLE),
    _field_of_tuple,
)


def _forward_results(binding: Binding, scope: Scope) -> Answer:
    """Replace a call of an autograd.Function by the results that its `forward` computed."""
    del scope
    call = binding.value
    if not isinstance(call, Call) or not isinstance(call.op, FunctionOp):
        return None
    results = forward_results(call)
    return Tuple(tuple(results), call.span) if isinstance(call.type, TupleType) else results[0]


drop_stop_gradient = rewrite_pass(
    "drop_stop_gradient",
    "Put operands in place of their stop_gradient and straight_through, and results of `forward` in place of calls of "
    "autograd.Functions. "
    "For programs whose gradients are all taken.",
    by_op(dict.fromkeys(("stop_gradient", "straight_through"), _base_level(_same_type))),
    _forward_results,
    _field_of_tuple,
    looks_for=("stop_gradient", "straight_through", function_op.NAMESPACE),
)
