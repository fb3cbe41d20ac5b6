"""The tangents of an operator's results: by its forward rule, by its gradient where it is elementwise, otherwise by the
transpose of its gradient, which is linear in the gradient of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta.autograd.levels import call, is_tensor, is_tensor_list
from meta.autograd.transpose import transposed
from meta.eager.seeds import add_up, zeros_of
from meta.errors import MetaError
from meta.ir.type import TensorType
from meta.op.grad.rule import GradRule, as_tuple, gradient_rule, rule_for
from meta.op.registry import Op, as_type
from meta.tree import is_tuple, leaves_of


def result_tangents(op: Op, args: Any, results: tuple[Any, ...], tangents: Any) -> Sequence[Any]:
    """A tangent or None for each of the results.

    args: in schema order.  tangents: in the same places, the tensors' tangents, None for a constant.
    Raises GradientError for an argument with a tangent whose derivative is not implemented."""
    rule = gradient_rule(op.name)
    if rule is None or not all(map(is_tensor, results)):
        return (None,) * len(results)
    with_tangents = [p for p in rule.differentiable if _any(tangents[p])]
    flows = rule.flowing(results)
    if not with_tangents or not flows:
        return (None,) * len(results)
    rule.check_available(tuple(p in with_tangents for p in rule.differentiable))
    if rule.forward == "linear":
        outgoing = as_tuple(_linear(op, rule, args, tangents))
    elif rule.forward == "multilinear":
        outgoing = as_tuple(_multilinear(op, args, tangents, with_tangents))
    elif rule.forward is not None:
        outgoing = as_tuple(rule.forward(*args, *rule.arranged(results), *_filled(rule, args, tangents)))
    else:
        outgoing = _derived(op, rule, args, results, tangents, with_tangents)
    return [t if i in flows else None for i, t in enumerate(outgoing)]


def _any(tangent: Any) -> bool:
    return any(t is not None for t in leaves_of(tangent))


def _or_zeros(x: Any, tangent: Any) -> Any:
    """The tangents of an argument, zeros where there are none; None for an argument that is not a tensor."""
    if is_tuple(x):
        return tuple(map(_or_zeros, x, tangent or (None,) * len(x)))
    return zeros_of(x) if tangent is None and is_tensor(x) else tangent


def _filled(rule: GradRule, args: Any, tangents: Any) -> list[Any]:
    return [_or_zeros(args[p], tangents[p]) for p in rule.differentiable]


def _linear(op: Op, rule: GradRule, args: Any, tangents: Any) -> Any:
    """An operator that is linear in its differentiable arguments together, on their tangents."""
    operands = list(args)
    for position, tangent in zip(rule.differentiable, _filled(rule, args, tangents), strict=True):
        operands[position] = tangent
    return call(op, operands)


def _multilinear(op: Op, args: Any, tangents: Any, with_tangents: Sequence[int]) -> Any:
    """An operator that is linear in each of its differentiable arguments: the product rule."""
    total = None
    for position in with_tangents:
        operands = list(args)
        operands[position] = tangents[position]
        total = add_up(total, call(op, operands))
    return total


def _derived(
    op: Op, rule: GradRule, args: Any, results: tuple[Any, ...], tangents: Any, with_tangents: Sequence[int]
) -> Sequence[Any]:
    y = results[0]
    # The gradient of a complex function has the conjugate factor; the transpose conjugates it once more.
    is_complex = any(dtypes.is_complex(x.dtype) for x in leaves_of((*args, y)) if is_tensor(x))
    if len(results) == 1 and not is_complex and is_elementwise(op, args, y.type):
        total = None
        spread = [_spread(arg, y.type) for arg in args]
        for position in with_tangents:
            needs = tuple(p == position for p in rule.differentiable)
            gradients = rule.function(needs, *spread, y, _spread(tangents[position], y.type))
            total = add_up(total, gradients[rule.differentiable.index(position)])
        return (total,)
    return transposed(op, rule_for(rule, results), args, results, tangents, rule.flowing(results))


def is_elementwise(op: Op, args: Any, kind: TensorType) -> bool:
    """Whether every element of the result, of type `kind`, depends on the elements of the tensors at its place, after
    they are broadcast: what the pattern of the operator says, if its type function takes tensors of the result's shape
    in their place."""
    if op.pattern not in ("elemwise", "broadcast") or op.inplace or any(map(is_tensor_list, args)):
        return False
    types = [as_type(arg) for arg in args]
    tensors = [t for t in types if isinstance(t, TensorType)]
    if all(t.shape == kind.shape for t in tensors):
        return True
    if op.pattern == "elemwise" or not all(broadcasts(t, kind) for t in tensors):
        return False
    try:
        inferred = op.infer([t.with_shape(kind.shape) if isinstance(t, TensorType) else t for t in types])
    except MetaError:
        return False
    return inferred is kind


def broadcasts(t: TensorType, kind: TensorType) -> bool:
    """Whether a tensor of type `t` broadcasts to the shape of `kind`."""
    if t.ndim > kind.ndim:
        return False
    sizes = zip(t.shape, kind.shape[kind.ndim - t.ndim :], strict=True)
    return all(a == 1 or a == b for a, b in sizes)


def _spread(x: Any, kind: TensorType) -> Any:
    """A tensor in the shape of the result, and a floating one in its dtype; other arguments as they are."""
    if not is_tensor(x):
        return x
    if x.shape != kind.shape:
        x = meta.broadcast_to(x, kind.shape)
    return meta.cast(x, kind.dtype) if dtypes.is_float(x.dtype) and x.dtype != kind.dtype else x
