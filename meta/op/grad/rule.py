"""The gradient rules of the operators: GradRule, and the table of rules by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import Any, Literal, cast

import meta
from meta import dtype as dtypes
from meta._generated.table import FAMILIES
from meta.errors import GradientError
from meta.ir.type import TensorType
from meta.op.grad.support import conjugate
from meta.op.registry import Op, check_registered, get, owner
from meta.records import record
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of, with_leaves

GradientFunction = Callable[..., tuple[Any, ...]]


@record(eq=False)
class GradRule:
    """How one operator is differentiated.

    function: `function(needs, *args, *outputs, *output gradients)` -> one gradient (or None) for each position in
        `differentiable`. `needs` says which of those are wanted. The function reads values only of the arguments and
        outputs in `saved_args` and `saved_outputs`; the others arrive as types.
    differentiable: positions in the schema of the arguments that have gradients.
    saved_args, saved_outputs: positions of the arguments and outputs whose values the function reads.
    outputs: number of results; None if it depends on the call (split): then gradients flow from all, all are saved or
        none, and `function` takes the results as one tuple and their gradients as another.
    differentiable_outputs: positions of the results that gradients flow from.
    undefined: results whose missing gradient is passed as None; other missing gradients are passed as zeros.
    forward: tangents of the results: "linear" if the operator is linear in its differentiable arguments together,
        "multilinear" if in each of them, or `forward(*args, *outputs, *tangents)`, where a missing tangent is zeros;
        None to derive them from `function`.
    absent: the gradients of the results after the first, None for each, if gradients flow only from the first;
        otherwise None.
    eager: what an eager backward pass calls in place of `function`, see `meta.eager.fused`.
    unavailable: argument position -> the reason why it has no gradient.  remedy: what to do about those.
    """

    op: str
    function: GradientFunction
    differentiable: tuple[int, ...]
    saved_args: frozenset[int] = frozenset()
    saved_outputs: frozenset[int] = frozenset()
    outputs: int | None = 1
    differentiable_outputs: frozenset[int] = frozenset({0})
    undefined: frozenset[int] = frozenset()
    unavailable: dict[int, str] = field(default_factory=dict[int, str])
    remedy: str = "detach it: x.detach()"
    forward: Literal["linear", "multilinear"] | Callable[..., Any] | None = None
    absent: tuple[None, ...] | None = field(init=False)
    eager: GradientFunction = field(init=False)

    def __post_init__(self) -> None:
        first_only = self.differentiable_outputs == frozenset({0})
        absent = (None,) * (self.outputs - 1) if first_only and self.outputs is not None else None
        object.__setattr__(self, "absent", absent)
        self.replace_eager(self.function)

    def replace_eager(self, function: GradientFunction) -> None:
        """Let eager backward passes call another function of the same arguments and results."""
        object.__setattr__(self, "eager", function)

    def flowing(self, outs: Sequence[Any]) -> frozenset[int]:
        """The positions of the results that gradients flow from; of these, only floating and complex ones. outs: the
        results, or their types."""
        declared = range(len(outs)) if self.outputs is None else self.differentiable_outputs
        return frozenset([i for i in declared if dtypes.is_inexact(outs[i].dtype)])

    def saves(self, position: int) -> bool:
        """Whether `function` reads the value of a result."""
        return bool(self.saved_outputs) if self.outputs is None else position in self.saved_outputs

    def operands(
        self, args: Iterable[Any], outs: Sequence[Any], dys: Mapping[int, Any], flows: frozenset[int]
    ) -> tuple[Any, ...]:
        """The arguments of `function` after `needs`. Missing gradients are zeros, or None if they are `undefined`.

        args, outs: values where `function` reads them, else types.  dys: the gradients that arrived, by position of the
        result.  flows: the positions that gradients flow from."""
        zeros = flows - self.undefined - dys.keys()
        filled = [_zeros(out) if i in zeros else dys.get(i) for i, out in enumerate(outs)]
        return (*args, *self.arranged(outs), *self.arranged(filled))

    def arranged(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Results, or their gradients, as `function` takes them."""
        return (tuple(values),) if self.outputs is None else tuple(values)

    def check_available(self, needs: tuple[bool, ...], location: str | None = None) -> None:
        """Raise GradientError for an argument that needs a gradient and has none. location: of the call."""
        for position, is_needed in zip(self.differentiable, needs, strict=True):
            if is_needed and position in self.unavailable:
                raise self.unavailable_gradient(position, location)

    def unavailable_gradient(self, position: int, location: str | None = None) -> GradientError:
        """The error about the argument at `position`, which has no gradient."""
        problem = f"argument '{get(self.op).schema.names[position]}' has no gradient ({self.unavailable[position]})"
        return GradientError(self.op, problem, remedy=self.remedy, location=location)


@record(eq=False)
class ProgramOp(Op):
    """An operator that is made for one call of a program and not registered. rule: its gradient, None without one."""

    rule: GradRule | None = field(kw_only=True)


def conjugated(rule: GradRule) -> GradRule:
    """The rule for complex results. As in torch, a gradient is the derivative of a real loss by the conjugates of the
    arguments: -dx is the direction of steepest descent. An analytic f has dx = conj(f'(x)) * dy.

    The formulas of an operator that is declared "analytic" compute f'(x) * dy from real numbers and values of the
    arguments, so that dx is the conjugate of the formula at conj(dy). Formulas without values are real."""
    op = owner(rule.op)
    if op is None or op.complex != "analytic" or not (rule.saved_args or rule.saved_outputs):
        return rule
    entry = _conjugates.get(rule.op)
    if entry is None or entry[0] is not rule:  # operators are redefined
        entry = _conjugates[rule.op] = rule, replace(rule, function=_conjugated(rule))
    return entry[1]


_conjugates: dict[str, tuple[GradRule, GradRule]] = {}
"""By operator: its rule, and that for complex results."""


def _conjugate_all(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return with_leaves(values, [conjugate(x) for x in leaves_of(values)])


def _conjugated(rule: GradRule) -> GradientFunction:
    count, function = 1 if rule.outputs is None else rule.outputs, rule.function

    def run(needs: tuple[bool, ...], *values: object) -> tuple[Any, ...]:
        return _conjugate_all(function(needs, *values[:-count], *_conjugate_all(values[-count:])))

    return run


def rule_for(rule: GradRule, outs: Iterable[Any]) -> GradRule:
    """The rule of a call with these results, or results of these types."""
    return conjugated(rule) if any(dtypes.is_complex(y.dtype) for y in outs) else rule


def _zeros(kind: Any) -> Any:
    return meta.zeros(kind.shape, dtype=kind.dtype, device=kind.device)


_rules: dict[str, GradRule] = {}
_loaded_families: set[str] = set()


def gradient_rule(op: str) -> GradRule | None:
    """The rule of the operator with this name, None if it has none. The first call for a family imports the generated
    module that adds the rules of that family."""
    rule = _rules.get(op)
    if rule is not None:
        return rule
    family = FAMILIES.get(op)
    if family is None or family in _loaded_families:
        return None
    import_module(f"meta._generated.gradients.{family}")
    _loaded_families.add(family)
    return _rules.get(op)


def rule_of(op: Any) -> GradRule | None:
    """The gradient rule of an operator in a program. Raises RegistryError for one that was redefined since."""
    if isinstance(op, ProgramOp):
        return op.rule
    check_registered(op)
    return gradient_rule(op.name)


def add_rules(added: Iterable[GradRule]) -> None:
    """Put rules into the table."""
    _rules.update({rule.op: rule for rule in added})


def remove_rule(op: str) -> None:
    """Remove the rule of an operator, if it has one."""
    _rules.pop(op, None)


def as_tuple(value: object) -> tuple[Any, ...]:
    """The results of a function that returns one value, or several as a tuple or list."""
    return tuple(cast("tuple[Any, ...]", value)) if isinstance(value, (list, tuple)) else (value,)


def check_gradient(
    subject: str,
    argument: str,
    gradient: Any,
    expected: TensorType,
    kind: type = TensorLike,
    location: str | None = None,
) -> None:
    """Raise GradientError unless `gradient`, which a user's gradient function returned for an argument, is a tensor (of
    class `kind`) of type `expected`. Symbolic sizes may differ in form."""
    actual = gradient.type if isinstance(gradient, kind) else None
    if actual is expected:
        return
    text = repr(actual) if actual is not None else "None" if gradient is None else f"of class {type(gradient).__name__}"
    if actual is None:
        remedy = (
            "return a tensor, or declare the argument non_differentiable" if gradient is None else "return a tensor"
        )
    elif len(actual.shape) != len(expected.shape) or any(map(_differ, actual.shape, expected.shape)):
        remedy = f"sum or reshape it to {expected.shape}"
    elif actual.dtype != expected.dtype:
        remedy = f'cast it: .cast("{expected.dtype}")'
    elif actual.device != expected.device:
        remedy = f'move it: .to("{expected.device}")'
    else:
        return
    problem = f"the gradient of {argument} is {text}"
    raise GradientError(subject, problem, f"the argument's type {expected!r}", remedy, location=location)


def _differ(a: Any, b: Any) -> bool:
    """Whether two sizes are certainly different."""
    difference = a - b
    return isinstance(difference, int) and difference != 0
