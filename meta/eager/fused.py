"""Gradient formulas as few kernels: what an eager backward pass does for a call of known types.

    softshrink: where(greater(abs(x), lambd), dy, 0)        one kernel that reads x and dy, and writes the gradient

The first call of a rule for some types records its function. Operators that compute an element from one element of each
operand become one kernel with those that they read; reductions and the rest stay kernels of their own. A rule without
two such operators in a row runs as it is written, and so does every rule in scopes that look at operators, in traces,
and where gradients of gradients are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from meta.backend.eviction import on_eviction
from meta.backend.tvm.adapter import te
from meta.backend.tvm.compute import TEImplementation
from meta.backend.tvm.numbers import Number
from meta.backend.tvm.shape_generic import kernel
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import element
from meta.dtype import is_complex
from meta.eager.ndarray import NDArray
from meta.eager.runners import Runner, build_runner, runner_of
from meta.errors import MetaError
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType
from meta.modes import scopes
from meta.op.axes import is_elementwise
from meta.op.dispatch import implementation
from meta.op.formulas import HeldNumber, PerElement, Term, computed, recorded
from meta.op.grad.rule import GradRule
from meta.op.implementation import implementations_of, on_change
from meta.op.plugins import BUILT_IN
from meta.op.registry import Op, as_type
from meta.records import record
from meta.schema import Arg, Float, Schema, Tensor
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of

_PLAN_LIMIT: Final = 1024
"""Plans of a rule; one that meets more types or numbers starts over."""
_BESIDES: Final = ("where", "cast")
"""Elementwise operators whose computes are not made from a function of expressions."""

Plan = Callable[[Sequence[Any]], tuple[Any, ...]]


class FusedGradient:
    """The function of a rule.

    plans: by the types and attributes of calls, None for those that run it as it is."""

    def __init__(self, rule: GradRule) -> None:
        self.rule = rule
        self.plans: dict[Any, Plan | None] = {}
        _fused.add(self)

    def __call__(self, needs: tuple[bool, ...], *values: Any) -> tuple[Any, ...]:
        if scopes.active:
            return self.rule.function(needs, *values)
        key = needs, *[_fact(value) for value in values]
        try:
            plan = self.plans[key]
        except KeyError:
            plan = self._planned(key, needs, values)
        return self.rule.function(needs, *values) if plan is None else plan(values)

    def _planned(self, key: Any, needs: tuple[bool, ...], values: Sequence[Any]) -> Plan | None:
        """The plan of a call, None without one."""
        try:
            planner = _Planner(f"{self.rule.op}_gradient", values)
            plan = planner.plan(partial(self.rule.function, needs))
        except (MetaError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            plan = None  # it reads values, or returns several tensors from one operator
        else:
            if not planner.saved:
                self.rule.replace_eager(self.rule.function)
                return None
        if len(self.plans) >= _PLAN_LIMIT:
            self.plans.clear()
        self.plans[key] = plan
        return plan


_fused: WeakSet[FusedGradient] = WeakSet()


def _forget(_: str | None = None) -> None:
    for each in list(_fused):
        each.plans.clear()


on_change(_forget)
on_eviction(_forget)


def _fact(value: Any) -> Any:
    if isinstance(value, NDArray):
        return value._type
    return value if value is None or value.__class__ is TensorType else (value.__class__, repr(value))


class _Given(float):
    """A number among the attributes of a call, which a kernel takes at run time."""


class _Planner:
    """The kernels of a gradient, in order.

    steps: runners, and where their operands are among the values of a call and the results of earlier steps.
    slots: where terms are.  saved: the number of operators without a kernel of their own."""

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name = name
        self.count = len(values)
        self.slots: dict[Term, int] = {}
        self.steps: list[tuple[Runner, tuple[int, ...]]] = []
        self.saved = 0
        self.operands = [self._operand(i, value) for i, value in enumerate(values)]

    def _operand(self, i: int, value: Any) -> Any:
        if not isinstance(value, NDArray):
            return _Given(value) if value.__class__ is float else value
        self.slots[term := Term(value._type)] = i
        return term

    def plan(self, function: Callable[..., tuple[Any, ...]]) -> Plan:
        outs = [None if y is None else self.slot(y) for y in recorded(function, *self.operands)]
        steps = self.steps

        def run(values: Sequence[Any]) -> tuple[Any, ...]:
            slots = [*values]
            for runner, positions in steps:
                slots.append(runner(*[slots[i] for i in positions]))
            return tuple([None if i is None else slots[i] for i in outs])

        return run

    def slot(self, term: Term) -> int:
        """Where a term is, after the steps that compute it.

        Raises TypeError for an operator of a list of tensors, and for an array that the function itself has made."""
        if term not in self.slots:
            terms = {id(arg) for arg in term.args if isinstance(arg, Term)}
            if any(isinstance(x, TensorLike) and id(x) not in terms for x in leaves_of(term.args)):
                raise TypeError("an operand has no slot")
            runner, operands = self._expression(term) if _fuses(term) else _single(term)
            self.steps.append((runner, tuple(map(self.slot, operands))))
            self.slots[term] = self.count + len(self.steps) - 1
        return self.slots[term]

    def _expression(self, root: Term) -> tuple[Runner, list[Term]]:
        order = list(dict.fromkeys(self._operands_first(root)))
        steps = [t for t in order if t not in self.slots and _fuses(t)]
        leaves = [t for t in order if t in self.slots or not _fuses(t)]
        given = list({id(a): a for t in steps for a in t.args if isinstance(a, _Given)}.values())
        self.saved += len(steps) - 1
        op, payload = _operator(self.name, steps, leaves, given)
        call = CallInfo(op, (*(t.type for t in leaves), *map(float, given)), root.type, root.type.device)
        return runner_of(kernel(payload, call), call), leaves

    def _operands_first(self, term: Term) -> Iterator[Term]:
        if term not in self.slots and _fuses(term):
            for arg in term.args:
                if isinstance(arg, Term):
                    yield from self._operands_first(arg)
        yield term


def _fuses(term: Term) -> bool:
    """Whether each element of a term is computed from one element of each operand, by a kernel of this package: users'
    kernels run where dispatch chooses them."""
    op = term.op
    if op is None or not is_elementwise(op) or is_complex(term.dtype):
        return False
    if any(each.dialect.name not in BUILT_IN for each in implementations_of(op.name)):
        return False
    chosen = implementation(op, "tvm")
    return chosen is not None and (op.name in _BESIDES or isinstance(chosen.payload.compute, PerElement))


def _single(term: Term) -> tuple[Runner, list[Term]]:
    """The kernel of an operator."""
    assert term.op is not None
    call = CallInfo(term.op, tuple(map(as_type, term.args)), term.type, term.type.device)
    return build_runner(call), [arg for arg in term.args if isinstance(arg, Term)]


def _operator(
    name: str, steps: Sequence[Term], leaves: Sequence[Term], given: Sequence[_Given]
) -> tuple[Op, TEImplementation]:
    """An operator of tensors and numbers that computes the last of `steps`, and its implementation."""
    place: dict[Any, str] = {t: f"%{i}" for i, t in enumerate((*leaves, *steps))}
    place |= {id(a): f"#{i}" for i, a in enumerate(given)}

    def text(arg: Any) -> str:
        return place[arg] if isinstance(arg, Term) else place.get(id(arg)) or f"{type(arg).__name__} {arg!r}"

    pattern = "elemwise" if all(t.shape == steps[-1].shape for t in leaves) else "broadcast"
    calls = [f"{t.op.name}({', '.join(map(text, t.args))})" for t in steps if t.op is not None]
    key = repr((name, pattern, [t.dtype for t in leaves], calls))
    known = _operators.get(key)
    if known is None:
        args = [Arg(f"x{i}", Tensor) for i in range(len(leaves))]
        schema = Schema(name, *args, *(Arg(f"n{i}", Float) for i in range(len(given))))
        expression = _Expression(name, tuple(steps), tuple(leaves), tuple(given))
        op = Op(name, "eager", schema, expression.declare, "The gradient of an operator.", pattern=pattern)
        known = _operators.setdefault(key, (op, TEImplementation(expression.compute)))
    return known


_operators: dict[str, tuple[Op, TEImplementation]] = {}
"""By what they compute. As many as there are formulas, dtypes, and numbers that formulas derive from attributes."""


@record(eq=False)
class _Expression:
    """What the last of `steps` is of `leaves` and numbers, in the place of `given`."""

    name: str
    steps: tuple[Term, ...]
    leaves: tuple[Term, ...]
    given: tuple[_Given, ...]

    def declare(self, *args: Any) -> Any:
        known: dict[Any, Any] = dict(zip(self.leaves, args, strict=False))
        for term in self.steps:
            assert term.op is not None
            known[term] = term.op.infer(tuple(known[a] if isinstance(a, Term) else a for a in term.args))
        return known[self.steps[-1]]

    def compute(self, *args: Any, out: Outs) -> Any:
        tensors, numbers = args[: len(self.leaves)], args[len(self.leaves) :]
        held = {id(a): HeldNumber(n) if isinstance(n, Number) else n for a, n in zip(self.given, numbers, strict=True)}
        known: dict[Term, Term] = {leaf: leaf for leaf in self.leaves}
        for term in self.steps:
            operands = [known[a] if isinstance(a, Term) else held.get(id(a), a) for a in term.args]
            known[term] = Term(term.type, term.op, tuple(operands))

        def value(*index: Any) -> Any:
            elements = {t: element(x, index, t.dtype) for t, x in zip(self.leaves, tensors, strict=True)}
            return computed(known[self.steps[-1]], elements)

        return te.compute(out[0].shape, value, self.name)
