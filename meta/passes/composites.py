"""Composites: one operator for an expression that other systems spell out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from meta.ir.builder import Module
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, FunctionExpr, Var
from meta.ir.printer import to_array
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts
from meta.op.registry import get
from meta.passes.cse import dce
from meta.passes.manager import Pass
from meta.passes.rewriting import Rule, Scope, by_op, counted, rewrite
from meta.passes.simplify import call_of, producer, simplify

Answer = Expr | Atom | None


def _composites(module: Module) -> Module:
    """Put gelu in place of its expression by erf or tanh, and dense in place of a product with a transposed matrix,
    the addition of a bias and the reshapes around it. Simplifies the program and drops dead code first. Results stay
    the same up to rounding."""
    rounds = 4
    module = dce(simplify(module))
    for _ in range(rounds):
        new = simplify(_rewritten(module))
        if new is module:
            break
        module = dce(new)
    return module


def _rewritten(module: Module) -> Module:
    new = {name: _function(f) for name, f in module.functions.items()}
    return module if all(new[n] is f for n, f in module.functions.items()) else Module(new)


def _function(function: FunctionExpr) -> FunctionExpr:
    counts = use_counts(function)
    rule = counted("composites", by_op(_table(counts)))
    return rewrite(function, rule)


def _table(counts: Counter[Var]) -> dict[str, Rule]:
    """The rules, which leave operands with other users as they are."""

    def once(atom: Any) -> bool:
        return isinstance(atom, Var) and counts[atom] <= 1

    def add(binding: Binding, scope: Scope) -> Answer:
        call = call_of(binding)
        for x, bias in (call.args, call.args[::-1]):
            if isinstance(bias, (Var, Constant)) and getattr(bias.type, "ndim", 0) == 1 and once(x):
                answer = _biased(scope, x, bias, once)
                if answer is not None and answer.type == call.type:
                    return answer
        return None

    def bias_add(binding: Binding, scope: Scope) -> Answer:
        x, bias, axis = call_of(binding).args
        return _biased(scope, x, bias, once) if axis in (-1, x.type.ndim - 1) and once(x) else None

    def reshape(binding: Binding, scope: Scope) -> Answer:
        return _unflattened(binding, scope) if once(call_of(binding).args[0]) else None

    return {"add": add, "bias_add": bias_add, "reshape": reshape, "dense": _transposed, "multiply": _gelu,
            "divide": _gelu, "matmul": _transposed_behind_reshape}  # fmt: skip


# --- products --------------------------------------------------------------------------------------------------------


def _biased(scope: Scope, x: Any, bias: Any, once: Callable[[Any], bool]) -> Call | None:
    """dense(x, w) + bias is dense(x, w, bias), also with a reshape of other axes in between."""
    view = producer(scope, x, "reshape")
    if view is not None and once(view.args[0]) and x.type.shape[-1:] == view.args[0].type.shape[-1:]:
        inner = _biased(scope, view.args[0], bias, once)
        return None if inner is None else scope.call_expr(view.op, (scope.emit(inner), view.args[1]))
    dense = producer(scope, x, "dense")
    if dense is None or dense.args[2] is not None:
        return None
    return scope.call_expr(dense.op, (*dense.args[:2], bias))


def _transposed(binding: Binding, scope: Scope) -> Answer:
    """dense(x, transpose(w)) without a bias is matmul(x, w), and so for a matrix x that is transposed."""
    x, w, bias = call_of(binding).args
    if bias is not None:
        return None
    weight, matrix = producer(scope, w, "transpose"), producer(scope, x, "transpose")
    if matrix is not None and x.type.ndim == 2:
        return scope.call_expr(get("matmul"), (matrix.args[0], weight.args[0] if weight else w, True, weight is None))
    return None if weight is None else scope.call_expr(get("matmul"), (x, weight.args[0], False, False))


def _unflattened(binding: Binding, scope: Scope) -> Answer:
    """reshape(dense(reshape(x, (m, k)), w), (..., n)) is dense(x, w): the axes but the last stay."""
    call = call_of(binding)
    dense = producer(scope, call.args[0], "dense")
    flat = None if dense is None else producer(scope, dense.args[0], "reshape")
    if dense is None or flat is None:
        return None
    x: Any = flat.args[0]
    result = call.type
    if not isinstance(result, TensorType) or x.type.ndim != result.ndim or x.type.shape[:-1] != result.shape[:-1]:
        return None
    if x.type.shape[-1] != flat.args[1][-1]:
        return None
    return scope.call_expr(dense.op, (x, *dense.args[1:]))


def _transposed_behind_reshape(binding: Binding, scope: Scope) -> Answer:
    """A matmul of reshape(transpose(y)), which exchanges the last two axes and then merges those in front, takes the
    reshaped y and a flag."""
    call = call_of(binding)
    args = list(call.args)
    for i in (0, 1):
        outer = producer(scope, args[i], "reshape")
        inner = None if outer is None else producer(scope, outer.args[0], "transpose")
        if outer is None or inner is None:
            continue
        y: Any = inner.args[0]
        ndim = y.type.ndim
        shape = args[i].type.shape
        axes = inner.args[1] or tuple(range(ndim))[::-1]
        exchanged = tuple(a % ndim for a in axes) == (*range(ndim - 2), ndim - 1, ndim - 2)
        if not exchanged or ndim < 3 or len(shape) < 3 or shape[-2:] != inner.type.shape[-2:]:  # type: ignore[union-attr]
            continue
        straight = scope.call(get("reshape"), (y, (*shape[:-2], shape[-1], shape[-2])))
        args[i], args[i + 2] = straight, not args[i + 2]
        return scope.call_expr(call.op, tuple(args))
    return None


# --- gelu ------------------------------------------------------------------------------------------------------------


def _gelu(binding: Binding, scope: Scope) -> Answer:
    """x * (1 + erf(x / sqrt(2))) / 2, and the form with tanh, however the product is ordered."""
    call = call_of(binding)
    factors, number = _factors(scope, binding.value, 3)
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        parts = _gate(scope, gate)
        if parts is None:
            continue
        function, inner, scale = parts
        if not _near(number * scale, 0.5):
            continue
        approximate = _argument(scope, function, inner, x)
        if approximate and x.type == call.type:
            return scope.call_expr(get("gelu"), (x, approximate))
    return None


def _factors(scope: Scope, value: Any, depth: int) -> tuple[list[Any], float]:
    """The tensors that are multiplied, and the product of the numbers."""
    call = value if isinstance(value, Call) else producer(scope, value, "multiply", "divide")
    if call is None or not depth or call.op_name not in ("multiply", "divide"):
        number = _number(value)
        return ([value], 1.0) if number is None else ([], number)
    left, a = _factors(scope, call.args[0], depth - 1)
    right, b = _factors(scope, call.args[1], depth - 1)
    if call.op_name == "multiply":
        return left + right, a * b
    return ([value], 1.0) if right or not b else (left, a / b)


def _number(value: Any) -> float | None:
    """The value of a number or of a constant without axes."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, Constant) and value.type.size == 1:
        return float(to_array(value.value).reshape(()))
    return None


def _terms(scope: Scope, value: Any) -> Iterator[tuple[Any, float]]:
    """(tensor, number) for `tensor + number`."""
    addition = producer(scope, value, "add")
    if addition is None:
        return
    for x, other in (addition.args, addition.args[::-1]):
        number = _number(other)
        if number is not None and _number(x) is None:
            yield x, number


def _gate(scope: Scope, value: Any) -> tuple[str, Any, float] | None:
    """(function, its argument, c) for `c * (1 + function(argument))`, multiplied out or not."""
    for x, number in _terms(scope, value):
        factors, scale = _factors(scope, x, 2)
        if len(factors) == 1 and _near(scale, number):
            call = producer(scope, factors[0], "erf", "tanh")
            if call is not None:
                return call.op_name, call.args[0], number
    return None


def _argument(scope: Scope, function: str, inner: Any, x: Any) -> str:
    """gelu's attribute `approximate` for `function(inner)`, "" where `inner` is not what gelu computes from x."""
    factors, scale = _factors(scope, inner, 3)
    if function == "erf":
        return "none" if factors == [x] and _near(scale, math.sqrt(0.5)) else ""
    if not _near(scale, math.sqrt(2 / math.pi)):
        return ""
    # x + 0.044715 * x ** 3, or x * (1 + 0.044715 * x ** 2)
    if len(factors) == 2 and x in factors:
        rest = factors[1] if factors[0] is x else factors[0]
        return "tanh" if any(_near(c, 1.0) and _is_power(scope, t, x, 2) for t, c in _terms(scope, rest)) else ""
    addition = producer(scope, factors[0], "add") if len(factors) == 1 else None
    if addition is None:
        return ""
    orders = (addition.args, addition.args[::-1])
    return "tanh" if any(a is x and _is_power(scope, b, x, 3) for a, b in orders) else ""


def _is_power(scope: Scope, value: Any, x: Any, exponent: int) -> bool:
    """Whether `value` is 0.044715 * x ** exponent."""
    factors, scale = _factors(scope, value, 4)
    total = 0
    for factor in factors:
        if factor is x:
            total += 1
            continue
        power, square = producer(scope, factor, "power"), producer(scope, factor, "square")
        if power is not None and power.args[0] is x and _number(power.args[1]) is not None:
            total += int(_number(power.args[1]) or 0)
        elif square is not None and square.args[0] is x:
            total += 2
        else:
            return False
    return total == exponent and _near(scale, 0.044715)


def _near(a: float, b: float) -> bool:
    """Equal up to the digits that programs are printed with."""
    return math.isclose(a, b, rel_tol=1e-4)


composites = Pass("composites", _composites, _composites.__doc__ or "")
