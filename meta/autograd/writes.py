"""Writes in place inside of transformations.

A tensor inside of a transformation has no memory: a write gives it, and the views of it, another value. What is written
has the derivative of what was written. Under `no_grad`, and through a view without a derivative, values change and the
derivative of the old value stays; forward mode knows no `no_grad`, as in torch.
"""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import NotSupportedError, TraceError
from meta.modes import GradMode, modes
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op
from meta.parts import link, mark_part
from meta.schema._dsl import TensorLike
from meta.tree import is_sequence, is_tuple, leaves_of


def write(op: str, x: Any, new: Any) -> None:
    """`x` becomes `new`, a tensor of its type that no other name has. Raises TraceError outside of its scope."""
    level = x.level
    others = [(x, True), *(() if x.aliases is None else x.aliases.others(x))]
    if level is not modes.transform or any(y.depth < level.depth for y, _ in others):
        raise TraceError(
            op,
            f"a tensor of {level.name} is written inside of another transformation, branch or loop, or after its end",
            "writes to tensors of the innermost one",
            "return the new value",
        )
    for y, same_history in others:
        value = new if new.shape == y.shape else meta.reshape(new, y.shape)
        if not same_history:
            value = _with_derivative_of(y, value)
        elif not modes.grad_enabled:
            value = level.written_without_grad(y, level.inside(value))
        y.become(level.inside(value))


def _with_derivative_of(old: Any, new: Any) -> Any:
    with GradMode(True):
        return meta.straight_through(new, old)


def written_without_grad(old: Any, new: Any) -> Any:
    """The values of `new` with the derivative of `old`."""
    return _with_derivative_of(old, new)


def captured_operands(level: Any, op: str, x: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a write to a tensor from outside of the level, in the enclosing one. Raises NotSupportedError
    for operands with a derivative, or that differ from call to call, which `x` could not keep."""
    if any(map(level.owns, leaves_of(operands))):
        raise NotSupportedError(
            op,
            f"a tensor of shape {x.shape} from outside of {level.name} is written with a value of it",
            "writes to tensors that the transformed function makes",
            "copy it first: x.copy(), or return the new value",
        )
    return tuple(tuple([level.unwrapped(x) for x in o]) if is_tuple(o) else level.unwrapped(o) for o in operands)


def placed(level: Any, op: Op, args: tuple[Any, ...], result: Any) -> Any:
    """The results of an operator as tensors of the level: the arguments that it overwrote, and views of arguments."""
    if isinstance(result, TensorLike):
        return _placed(level, op, args, 0, result)
    if is_sequence(result):
        return type(result)(_placed(level, op, args, i, y) for i, y in enumerate(result))
    return result


def _placed(level: Any, op: Op, args: tuple[Any, ...], index: int, result: Any) -> Any:
    if index in op.inplace:
        return args[op.schema.index[op.inplace[index]]]
    if not isinstance(result, TensorLike):
        return result
    out, base = level.inside(result), args[0] if op.view or op.part else None
    if base is None:
        return out
    if op.part or not level.has(base):
        return mark_part(out, base)
    rule = gradient_rule(op.name)
    link(out, base, level.keeps_history and rule is not None and 0 in rule.differentiable)
    return out
