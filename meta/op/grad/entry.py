"""Entries of derivatives.yaml: checked, compiled, and written as Python source of gradient functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from meta.errors import did_you_mean
from meta.op.grad.formula import Formula, FormulaError, compile_formula, result_names
from meta.op.registry import Op

SETTINGS = ("forward", "output_differentiability", "undefined_gradients", "where")
LINEARITIES = ("linear", "multilinear")
FormulaText = str | Callable[..., Any]
_RESERVED = re.compile(r"needs|meta|grad_support|g\d+|_gradient_\d+")
"""Names that the source of a gradient function uses for other things than arguments."""


@dataclass(frozen=True, slots=True)
class GradientEntry:
    """The entry of one operator.

    formulas: compiled formulas by the arguments they give gradients for.
    not_implemented: argument -> the reason why it has no gradient.
    outputs: which results gradients flow from; None for all.
    undefined: results whose missing gradient is passed as None instead of zeros.
    definitions: compiled formulas of the values that `formulas` share, by name, each over the earlier ones.
    forward: how forward mode computes tangents: one of LINEARITIES or a compiled formula; None to derive it.
    """

    op: Op
    formulas: Mapping[tuple[str, ...], Formula]
    not_implemented: Mapping[str, str]
    outputs: tuple[bool, ...] | None = None
    undefined: frozenset[int] = frozenset()
    definitions: Mapping[str, Formula] = field(default_factory=dict[str, Formula])
    forward: str | Formula | None = None

    def compiled(self) -> tuple[Formula, ...]:
        """Every compiled formula, the shared values' first."""
        forward = (self.forward,) if isinstance(self.forward, Formula) else ()
        return (*self.definitions.values(), *self.formulas.values(), *forward)

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions in the schema of the arguments with a formula, and of those whose gradient raises."""
        names = {n for key in self.formulas for n in key} | set(self.not_implemented)
        return tuple(i for i, arg in enumerate(self.op.schema.args) if arg.name in names)


def read_entry(op: Op, raw: object) -> GradientEntry:
    """Check and compile the entry of `op`: a mapping (see derivatives.yaml), "non_differentiable" or
    "not_implemented: reason". A formula may also be a Python function whose parameters name its inputs.

    Raises FormulaError unless every tensor argument has a formula or a reason why it has none."""
    tensors = {a.name for a in op.schema.args if a.is_tensor}
    if raw == "non_differentiable":
        return GradientEntry(op, {}, {})
    if isinstance(raw, str) and raw.startswith("not_implemented:"):
        return GradientEntry(op, {}, dict.fromkeys(sorted(tensors), raw.split(":", 1)[1].strip()))
    if not isinstance(raw, dict):
        raise FormulaError(
            op.name,
            f"its entry is {type(raw).__name__}",
            "a mapping, `non_differentiable` or `not_implemented: reason`",
            f'write gradient={{"{next(iter(sorted(tensors)), "x")}": {str(raw)!r}}}',
        )
    entry = cast("Mapping[str, Any]", raw)
    formulas, unavailable = _formulas(op, entry, tensors)
    if formulas:
        _check_argument_names(op)
    definitions = _definitions(op, entry.get("where", {}))
    compiled = {
        names: compile_formula(op, formula_text, f"_gradient_{i}", definitions)
        for i, (names, formula_text) in enumerate(formulas.items())
    }
    undefined = frozenset(entry.get("undefined_gradients", ()))
    differentiable = [n for n in op.schema.names if any(n in names for names in formulas)]
    forward = _forward(op, entry.get("forward"), differentiable)
    return GradientEntry(op, compiled, unavailable, _flags(op, entry), undefined, definitions, forward)


def _formulas(
    op: Op, entry: Mapping[str, Any], tensors: Collection[str]
) -> tuple[dict[tuple[str, ...], FormulaText], dict[str, str]]:
    """The formulas of an entry by the arguments that they are for, and the reasons of arguments without a gradient."""
    formulas: dict[tuple[str, ...], FormulaText] = {}
    non_differentiable: set[str] = set()
    unavailable: dict[str, str] = {}
    for key, formula_text in entry.items():
        if key in SETTINGS:
            continue
        names = tuple(name.strip() for name in str(key).split(","))
        unknown = [n for n in names if n not in tensors]
        if unknown:
            allowed = [*(n for n in op.schema.names if n in tensors), *SETTINGS]
            problem = f"'{unknown[0]}' is not a tensor argument of {op.schema!r}"
            raise FormulaError(op.name, problem, ", ".join(allowed), did_you_mean(unknown[0], allowed))
        if formula_text == "non_differentiable":
            non_differentiable.update(names)
        elif isinstance(formula_text, str) and formula_text.startswith("not_implemented"):
            unavailable.update(dict.fromkeys(names, formula_text.partition(":")[2].strip()))
        else:
            formulas[names] = formula_text
    missing = set(tensors) - {n for names in formulas for n in names} - non_differentiable - set(unavailable)
    if missing:
        problem = f"no formula for {', '.join(sorted(missing))}"
        raise FormulaError(op.name, problem, "a formula or a reason for every tensor argument")
    return formulas, unavailable


def tangent_names(names: Iterable[str]) -> list[str]:
    """How formulas of forward mode call the tangents of arguments."""
    return [f"{name}_t" for name in names]


def _forward(op: Op, forward: Any, differentiable: Sequence[str]) -> str | Formula | None:
    if forward is None or forward in LINEARITIES:
        return forward
    tangents = tangent_names(differentiable)
    argument_names = [name for name in tangents if name in op.schema.names]
    if argument_names:
        raise FormulaError(op.name, f"the formula of forward mode uses the argument name '{argument_names[0]}' itself")
    return compile_formula(op, forward, "_forward", tangents)


def _flags(op: Op, entry: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """Which results gradients flow from, None for all. Raises FormulaError unless there is a flag for each."""
    flags = entry.get("output_differentiability")
    results = len(result_names(op, "y"))
    if flags and op.outputs != ("*",) and len(flags) != results:
        problem = f"output_differentiability has {len(flags)} values"
        raise FormulaError(op.name, problem, f"one for each of {results} results, True or False")
    return tuple(flags) if flags else None


def _definitions(op: Op, where: object) -> dict[str, Formula]:
    """The compiled formulas of `where`. Raises FormulaError for a name that formulas use for something else."""
    if not isinstance(where, Mapping) or not all(isinstance(text, str) for text in where.values()):  # pyright: ignore[reportUnknownVariableType]
        raise FormulaError(op.name, f"`where` is {where!r}", "a mapping of names to formulas as text")
    reserved_names = {*op.schema.names, *result_names(op, "y"), *result_names(op, "dy")}
    out: dict[str, Formula] = {}
    for name, text in cast("Mapping[str, str]", where).items():
        if not name.isidentifier() or name in reserved_names or _RESERVED.fullmatch(name):
            raise FormulaError(op.name, f"`where` defines '{name}'", "an identifier that formulas do not use already")
        out[name] = compile_formula(op, text, "", out)
    return out


def _check_argument_names(op: Op) -> None:
    """Raise FormulaError for an argument whose name the gradient function needs for something else."""
    results = {*result_names(op, "y"), *result_names(op, "dy")}
    clashes = [name for name in op.schema.names if name in results or _RESERVED.fullmatch(name)]
    if clashes:
        raise FormulaError(
            op.name, f"gradient formulas use the argument name '{clashes[0]}' themselves", "another name"
        )


def function_source(entry: GradientEntry) -> str:
    """The gradient function `_<basename>(needs, *arguments, *results, *their gradients)` as Python source."""
    op = entry.op
    names = [*op.schema.names, *result_names(op, "y"), *result_names(op, "dy")]
    order = [op.schema.names[i] for i in entry.positions]
    lines = [f"def _{op.basename}(needs: Any, {', '.join(f'{n}: Any' for n in names)}) -> tuple[Any, ...]:\n"]
    lines.extend(f"    {name} = {definition.source}\n" for name, definition in entry.definitions.items())
    results: dict[str, str] = dict.fromkeys(order, "None")
    for count, (targets, formula) in enumerate(entry.formulas.items()):
        condition = " or ".join(f"needs[{order.index(t)}]" for t in targets)
        guarded = formula.source if len(order) == 1 else f"{formula.source} if {condition} else None"
        if len(targets) == 1:
            results[targets[0]] = guarded
            continue
        absent = ", ".join(["None"] * len(targets))
        lines.append(f"    g{count} = {formula.source} if {condition} else ({absent})\n")
        results.update({t: f"g{count}[{i}]" for i, t in enumerate(targets)})
    returned = ", ".join(results.values()) + ("," if len(results) == 1 else "")
    return "".join([*lines, f"    return ({returned})\n"])


def forward_source(entry: GradientEntry) -> str:
    """The function `_<basename>_forward(*arguments, *results, *tangents)` of an entry with a formula, as text."""
    op, forward = entry.op, entry.forward
    assert isinstance(forward, Formula)
    tangents = tangent_names(op.schema.names[i] for i in entry.positions)
    names = [*op.schema.names, *result_names(op, "y"), *tangents]
    head = f"def _{op.basename}_forward({', '.join(f'{n}: Any' for n in names)}) -> Any:\n"
    return f"{head}    return {forward.source}\n"


def rule_facts(entry: GradientEntry) -> dict[str, Any]:
    """The fields of the operator's GradRule besides name, function and positions, without those at their default."""
    op = entry.op
    values = {v for formula in (*entry.definitions.values(), *entry.formulas.values()) for v in formula.values}
    ys = result_names(op, "y")
    count = None if op.outputs == ("*",) else len(ys)
    flows = entry.outputs or (True,) * (count or 1)
    facts: dict[str, Any] = {
        "saved_args": frozenset(i for i, n in enumerate(op.schema.names) if n in values),
        "saved_outputs": frozenset(i for i, n in enumerate(ys) if n in values),
        "outputs": count,
        "differentiable_outputs": frozenset(i for i, flag in enumerate(flows) if flag),
        "undefined": entry.undefined,
        "unavailable": {op.schema.index[n]: why for n, why in entry.not_implemented.items()},
    }
    defaults: dict[str, Any] = {"outputs": 1, "differentiable_outputs": frozenset({0}), "unavailable": {}}
    return {name: value for name, value in facts.items() if value != defaults.get(name, frozenset())}
