"""Algebraic simplification: one small rule an identity, in a table by operator."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, Tuple, TupleGetItem, Var
from meta.ir.type import TensorType
from meta.ir.visitor import Rule, Scope, by_op
from meta.op.registry import get
from meta.passes.manager import rewrite_pass

Answer = Expr | Atom | None


def _call(binding: Binding) -> Call:
    assert isinstance(binding.value, Call)
    return binding.value


def _producer(scope: Scope, atom: Any, op: str) -> Call | None:
    """The call of `op` that computed `atom`, if one did."""
    value = scope.definition(atom)
    return value if isinstance(value, Call) and value.op_name == op else None


def _is_number(scope: Scope, value: Any, number: float) -> bool:
    """Whether an operand is `number` everywhere: a Python scalar, zeros/ones, or a constant with one element."""
    if isinstance(value, (int, float)):
        return value == number
    if isinstance(value, Constant):
        return value.type.size == 1 and float(value.value.item()) == number
    made = scope.definition(value)
    name = made.op_name if isinstance(made, Call) else ""
    if name == "full" and isinstance(made, Call):
        return any(a == number for a in made.args if isinstance(a, (int, float)) and not isinstance(a, bool))
    return (name in ("zeros", "zeros_like") and number == 0) or (name in ("ones", "ones_like") and number == 1)


def _identity_operand(number: float, *, left: bool) -> Rule:
    """`x op number` (and `number op x` when `left`) is x, where the result has x's type."""

    def rule(binding: Binding, scope: Scope) -> Answer:
        x1, x2 = _call(binding).args[:2]
        for x, other in ((x1, x2), (x2, x1)) if left else ((x1, x2),):
            if getattr(x, "type", None) == binding.var.type and _is_number(scope, other, number):
                return x
        return None

    return rule


def _double(op: str) -> Rule:
    """`op(op(x))` is x."""

    def rule(binding: Binding, scope: Scope) -> Answer:
        inner = _producer(scope, _call(binding).args[0], op)
        return inner.args[0] if inner else None

    return rule


def _same_type(binding: Binding, scope: Scope) -> Answer:
    """A change of shape, dtype or device to what it already is."""
    del scope
    x = _call(binding).args[0]
    return x if x.type == binding.var.type else None


def _cast_of_cast(binding: Binding, scope: Scope) -> Answer:
    """cast(cast(x, wide), dtype) is cast(x, dtype) when every value of x exists in `wide`; narrowing casts stay."""
    call = _call(binding)
    inner = _producer(scope, call.args[0], "cast")
    if inner is None:
        return None
    x: Any = inner.args[0]
    wide = inner.args[1]
    if not _lossless(x.type.dtype, wide):
        return None
    return x if x.type == call.type else scope.call_expr(call.op, (x, call.args[1]))  # type: ignore[arg-type]


_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _lossless(narrow: str, wide: str) -> bool:
    """Whether every value of dtype `narrow` is a value of `wide`."""
    if narrow == wide or narrow == "bool":
        return True
    if dtypes.is_float(wide):
        if dtypes.is_float(narrow):
            return dtypes.promote(narrow, wide) == wide
        low, high = dtypes.int_range(narrow)
        return max(-low, high).bit_length() <= _EXACT_BITS[wide] and (wide != "float16" or high <= 65504)
    if dtypes.is_float(narrow):
        return False
    (low, high), (lowest, highest) = dtypes.int_range(narrow), dtypes.int_range(wide)
    return lowest <= low and high <= highest


def _reshape_of_reshape(binding: Binding, scope: Scope) -> Answer:
    """A reshape of a reshape (or of another change of the shape alone) is one reshape."""
    call = _call(binding)
    for op in ("reshape", "squeeze", "expand_dims"):
        inner = _producer(scope, call.args[0], op)
        if inner is not None and isinstance(call.type, TensorType):
            return scope.call_expr(get("reshape"), (inner.args[0], call.type.shape))
    return None


def _transpose_of_transpose(binding: Binding, scope: Scope) -> Answer:
    """Two permutations are one; the identity is none."""
    call = _call(binding)
    ndim = call.args[0].type.ndim
    axes = _axes(call.args[1], ndim)
    if axes == tuple(range(ndim)):
        return call.args[0]
    inner = _producer(scope, call.args[0], "transpose")
    if inner is None:
        return None
    first = _axes(inner.args[1], ndim)
    return scope.call_expr(call.op, (inner.args[0], tuple(first[a] for a in axes)))  # type: ignore[arg-type]


def _axes(axes: Any, ndim: int) -> tuple[int, ...]:
    return tuple(a % ndim for a in axes) if axes else tuple(range(ndim))[::-1]


def _transposed_operand(binding: Binding, scope: Scope) -> Answer:
    """A matmul of a matrix with its last two axes swapped takes the matrix and a flag."""
    call = _call(binding)
    args = list(call.args)
    changed = False
    for i in (0, 1):
        inner = _producer(scope, args[i], "transpose")
        if inner is None:
            continue
        ndim = args[i].type.ndim
        swapped = (*range(ndim - 2), ndim - 1, ndim - 2)
        if _axes(inner.args[1], ndim) == swapped:
            args[i], args[i + 2], changed = inner.args[0], not args[i + 2], True
    return scope.call_expr(call.op, tuple(args)) if changed else None  # type: ignore[arg-type]


def _broadcast_operand(binding: Binding, scope: Scope) -> Answer:
    """An elementwise operator broadcasts by itself: broadcast_to before it is dropped when the other operand already
    has the result's shape."""
    call = _call(binding)
    x1, x2 = call.args[:2]
    for i, (x, other) in enumerate(((x1, x2), (x2, x1))):
        inner = _producer(scope, x, "broadcast_to")
        if inner is not None and getattr(getattr(other, "type", None), "shape", None) == call.type.shape:  # type: ignore[union-attr]
            args = (inner.args[0], x2) if i == 0 else (x1, inner.args[0])
            return scope.call_expr(call.op, (*args, *call.args[2:]))  # type: ignore[arg-type]
    return None


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
    made = scope.definition(value.value)
    return made.fields[value.index] if isinstance(made, Tuple) else None


def _forward(binding: Binding, scope: Scope) -> Answer:
    """stop_gradient and copies are their operand once gradients are taken and values are immutable."""
    del scope
    x = _call(binding).args[0]
    return x if isinstance(x, (Var, Constant)) and x.type == binding.var.type else None


TABLE: dict[str, Rule] = {
    "add": _first_of(_identity_operand(0, left=True), _broadcast_operand),
    "subtract": _first_of(_identity_operand(0, left=False), _broadcast_operand),
    "multiply": _first_of(_identity_operand(1, left=True), _broadcast_operand),
    "divide": _first_of(_identity_operand(1, left=False), _broadcast_operand),
    "power": _identity_operand(1, left=False),
    "negative": _double("negative"),
    "cast": _first_of(_same_type, _cast_of_cast),
    "reshape": _first_of(_same_type, _reshape_of_reshape),
    "squeeze": _same_type,
    "expand_dims": _same_type,
    "broadcast_to": _same_type,
    "sum_to": _same_type,
    "device_copy": _same_type,
    "transpose": _transpose_of_transpose,
    "matmul": _transposed_operand,
    "stop_gradient": _forward,
    "copy": _forward,
}

simplify = rewrite_pass(
    "simplify",
    "Apply algebraic identities (see TABLE): neutral operands, double negation, casts, reshapes and transposes of each "
    "other, transposes into matmul, explicit broadcasts into elementwise operators, fields of built tuples.",
    [by_op(TABLE), _field_of_tuple],
)
