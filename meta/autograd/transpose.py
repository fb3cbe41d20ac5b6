"""Forward mode from gradients: x -> dx is the transpose of dy -> gradient, which is linear in dy.

The gradient of a call is recorded once for the types of its operands, as a function of dy, and differentiated with
respect to dy: of what that emits, only the calls that lead to the result are kept, and run on the operands. The
gradient itself is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meta.autograd.levels import call, is_tensor
from meta.eager.call import raw_key
from meta.eager.seeds import add_up, ones_of
from meta.errors import NotSupportedError
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Binding, Call, Constant, Tuple, TupleGetItem, Var, operands
from meta.op.grad.rule import GradRule
from meta.op.registry import Op, as_type
from meta.tracing.differentiate import gradients
from meta.tracing.emitter import recording
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of, with_leaves

_LIMIT = 1024
_recorded: dict[Any, Recorded] = {}
"""By operator, argument types, attributes and which of them have tangents; starts over beyond `_LIMIT`."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Calls that compute tangents of results.

    inputs: variables of the operands, then of the results, then of the tangents of the operands.
    dys: further variables, gradients of the results that the gradient reads by value: ones. Zeros would do for formulas
        of linear operators, and not for those that take a logarithm of dy and an exponential after it.
    results: the tangent of each result, None for zeros.
    """

    inputs: tuple[Var, ...]
    dys: tuple[Var, ...]
    bindings: tuple[Binding, ...]
    results: tuple[Atom | None, ...]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The results for values of the inputs."""
        env: dict[Any, Any] = dict(zip(self.inputs, values, strict=True))
        env |= {var: ones_of(var.type) for var in self.dys}

        def read(atom: Any) -> Any:
            return atom.value if isinstance(atom, Constant) else env[atom] if isinstance(atom, Var) else atom

        for binding in self.bindings:
            value = binding.value
            if isinstance(value, Call):
                env[binding.var] = call(value.op, with_leaves(value.args, [read(x) for x in leaves_of(value.args)]))  # type: ignore[arg-type]
            elif isinstance(value, TupleGetItem):
                env[binding.var] = read(value.value)[value.index]
            else:
                env[binding.var] = tuple(map(read, operands(value)))
        return [None if atom is None else read(atom) for atom in self.results]


def transposed(
    op: Op, rule: GradRule, args: Any, results: tuple[Any, ...], tangents: Any, flows: frozenset[int]
) -> list[Any]:
    """The tangent of each result, None for zeros. flows: the results that derivatives flow to."""
    mask = tuple(t is not None for t in leaves_of(tuple(tangents)))
    key = raw_key(tuple(as_type(arg) for arg in args))
    key = None if key is None else (op, key, mask)
    recorded = _recorded.get(key)
    if recorded is None:
        recorded = _record(op, rule, args, results, tangents, flows)
        if len(_recorded) >= _LIMIT:
            _recorded.clear()
        if key is not None:
            _recorded[key] = recorded
    leaves = [x for x in (*leaves_of(tuple(args)), *results, *leaves_of(tuple(tangents))) if is_tensor(x)]
    return recorded.run(leaves)


def _record(
    op: Op, rule: GradRule, args: Any, results: tuple[Any, ...], tangents: Any, flows: frozenset[int]
) -> Recorded:
    builder = Builder(caller_spans=False)
    inputs: list[Var] = []

    def symbol(x: Any) -> Any:
        if not is_tensor(x):
            return x
        inputs.append(Var("", x.type))
        return Symbol(inputs[-1])

    with recording(builder):
        operands_of_rule, outs, tangent_symbols = (
            with_leaves(tuple(part), [symbol(x) for x in leaves_of(tuple(part))]) for part in (args, results, tangents)
        )
        dys = [Symbol(Var("", y.type)) if i in flows else None for i, y in enumerate(results)]
        needs = tuple(any(t is not None for t in leaves_of(tangents[p])) for p in rule.differentiable)
        arg_gradients = rule.function(needs, *operands_of_rule, *rule.arranged(outs), *rule.arranged(dys))
        seeds: dict[Atom, Any] = {}
        for position, gradient in zip(rule.differentiable, arg_gradients, strict=True):
            for g, t in zip(_leaves(gradient), _leaves(tangent_symbols[position]), strict=False):
                if isinstance(g, Symbol) and t is not None:
                    seeds[g.atom] = add_up(seeds.get(g.atom), t)
        sources = [dy.atom for dy in dys if dy is not None]
        arrived = gradients(builder, seeds, sources)  # type: ignore[arg-type]
        atoms = tuple(None if dy is None or dy.atom not in arrived else arrived[dy.atom].atom for dy in dys)
        bindings = _leading_to(op, builder.bindings, atoms)
    read = {atom for binding in bindings for atom in operands(binding.value)}
    return Recorded(tuple(inputs), tuple(v for v in sources if v in read), bindings, atoms)  # type: ignore[arg-type]


def _leaves(value: Any) -> tuple[Any, ...]:
    return tuple(leaves_of(value))


def _leading_to(op: Op, bindings: Sequence[Binding], results: Sequence[Atom | None]) -> tuple[Binding, ...]:
    """The bindings that the results depend on."""
    live: set[Any] = set(results)
    bindings_to_keep: list[Binding] = []
    for binding in reversed(bindings):
        if binding.var not in live:
            continue
        if not isinstance(binding.value, (Call, Tuple, TupleGetItem)):
            raise NotSupportedError(
                op.name,
                "its gradient contains a conditional or a function, which forward mode does not transpose",
                "gradients of operator calls",
                "use reverse mode: meta.autograd.vjp",
            )
        live.update(operands(binding.value))
        bindings_to_keep.append(binding)
    return tuple(reversed(bindings_to_keep))
