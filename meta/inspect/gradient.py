"""The gradient of an operator: its formulas, what they read and call, and whether second derivatives follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from meta._generated.formulas import FORMULAS
from meta.errors import MetaError
from meta.inspect.called_operators import operators_called
from meta.inspect.sources import PACKAGE, location, location_of_function
from meta.op.grad.entry import SETTINGS
from meta.op.grad.formula import find_function, result_names
from meta.op.grad.rule import GradRule, gradient_rule
from meta.op.registry import Op, all_ops
from meta.op.user.gradients import UNDEFINED as NO_GRADIENT

TABLE = PACKAGE / "op/grad/derivatives.yaml"
NON_DIFFERENTIABLE = "non_differentiable"
NOT_IMPLEMENTED = "not_implemented"
UNDEFINED = "undefined"


@dataclass(frozen=True, slots=True)
class GradientFormula:
    """The gradient of one argument, or of several at once.

    arguments: their names.  text: the formula, or the name of the function that computes it.
    location: `file:line` of that function; None for an expression.
    """

    arguments: tuple[str, ...]
    text: str
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Called:
    """An operator that a gradient calls.

    state: "differentiable", "non_differentiable", "not_implemented" or "undefined"; "missing" if it does not exist.
    reason: of "not_implemented"."""

    name: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gradient:
    """How an operator is differentiated.

    state: "differentiable"; "non_differentiable" by nature; "not_implemented" for a `reason`; "undefined" if
        meta.define got no gradient.
    location: `file:line` of the entry; None where meta.define got it with the type function.
    saved: names of the arguments and results whose values are kept for the backward pass, derived from the formulas.
    calls: the operators that the formulas call, and with them whether second derivatives exist.
    """

    state: str
    reason: str = ""
    location: str | None = None
    formulas: tuple[GradientFormula, ...] = ()
    saved: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()


def gradient(op: Op) -> Gradient:
    """The gradient of an operator."""
    rule = gradient_rule(op.name)
    state, reason = _state(op, rule)
    entry = op.gradient if op.gradient is not None else FORMULAS.get(op.name, {})
    where = line_in_table(op.name) if op.gradient is None else None
    if rule is None or state == UNDEFINED:
        return Gradient(state, reason, where)
    called = operators_called(rule.function, methods=True)
    return Gradient(state, reason, where, _formulas(op, entry), _saved(op, rule), tuple(map(_called, called)))


def _state(op: Op, rule: GradRule | None) -> tuple[str, str]:
    """The state of an operator's gradient, and the reason if it has none."""
    if rule is None:
        return NON_DIFFERENTIABLE, ""
    if set(rule.unavailable) != set(rule.differentiable):
        return "differentiable", ""
    return (UNDEFINED if op.gradient == NO_GRADIENT else NOT_IMPLEMENTED), next(iter(rule.unavailable.values()))


def _called(name: str) -> Called:
    op = {op.name: op for op in all_ops()}.get(name)
    if op is None:
        return Called(name, "missing")
    return Called(name, *_state(op, gradient_rule(name)))


def _formulas(op: Op, entry: object) -> tuple[GradientFormula, ...]:
    """The formulas of an entry, also for arguments without a gradient."""
    if not isinstance(entry, Mapping):
        return (GradientFormula(op.schema.names, str(entry)),)
    entries = cast("Mapping[str, Any]", entry)
    where = "; ".join(f"{name} = {text}" for name, text in entries.get("where", {}).items())
    formulas = (
        GradientFormula(tuple(name.strip() for name in key.split(",")), *_formula_text(op, value))
        for key, value in entries.items()
        if key not in SETTINGS
    )
    return tuple(replace(f, text=f"{f.text} where {where}") if where else f for f in formulas)


def _formula_text(op: Op, formula: object) -> tuple[str, str | None]:
    """A formula as text, and the location of the function that it names."""
    if callable(formula):
        return getattr(formula, "__name__", repr(formula)), location_of_function(formula)
    text = str(formula)
    if not text.isidentifier() or text in (NON_DIFFERENTIABLE, NOT_IMPLEMENTED, *op.schema.names):
        return text, None
    try:
        return text, location_of_function(find_function(op, text))
    except MetaError:  # `dy` and `y` are names of values
        return text, None


def _saved(op: Op, rule: GradRule) -> tuple[str, ...]:
    results = result_names(op, "y")
    arguments = [op.schema.names[i] for i in sorted(rule.saved_args)]
    return (*arguments, *(results[i] for i in sorted(rule.saved_outputs)))


def key_for(name: str, line: str) -> str | None:
    """The key of an operator among those that a line of derivatives.yaml begins with; None if it is not there."""
    keys = line.partition(":")[0].split(", ")
    return next((key for key in keys if any(key.replace("{rank}", rank) == name for rank in "123")), None)


def line_in_table(name: str) -> str | None:
    """`file:line` of the entry of an operator in derivatives.yaml; None without one."""
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        if key_for(name, line) is not None:
            return location(TABLE, number)
    return None
