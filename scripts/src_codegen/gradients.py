"""meta/_generated/gradients.py: gradient functions compiled from meta/op/grad/derivatives.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from meta.errors import did_you_mean
from meta.op.registry import Op, all_ops
from scripts.src_codegen.formula import Formula, FormulaError, compile_formula, result_names
from scripts.src_codegen.signature import by_family, header

TABLE = Path(__file__).resolve().parents[2] / "meta/op/grad/derivatives.yaml"
_SETTINGS = ("output_differentiability", "undefined_gradients")
_IMPORTS = '''
# ruff: noqa: A002, E501
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

from meta._generated import functions as f
from meta.autograd.rule import GradRule
'''


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of one operator: joint formulas by argument names, and arguments without a gradient."""

    op: Op
    formulas: Mapping[tuple[str, ...], str]
    non_differentiable: frozenset[str]
    not_implemented: Mapping[str, str]
    outputs: tuple[bool, ...] | None
    undefined: frozenset[int]


@cache
def entries() -> Mapping[str, Entry]:
    """The whole table, checked: every operator has an entry and every tensor argument a formula or a reason."""
    raw: dict[str, Any] = yaml.load(TABLE.read_text(encoding="utf-8"), Loader=_UniqueLoader)
    ops = {op.name: op for op in all_ops()}
    unknown = set(raw) - set(ops)
    if unknown:
        name = sorted(unknown)[0]
        raise FormulaError(f"derivatives.yaml: '{name}' is not an operator {did_you_mean(name, ops)}")
    missing = sorted(set(ops) - set(raw))
    if missing:
        raise FormulaError(f"derivatives.yaml: no entry for {', '.join(missing)} (write `name: non_differentiable`?)")
    return {name: _entry(op, raw[name]) for name, op in ops.items()}


class _UniqueLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice, which YAML would silently resolve to the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [k.value for k, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise FormulaError(f"derivatives.yaml: '{key}' occurs twice")
        return super().construct_mapping(node, deep)


def _entry(op: Op, raw: Any) -> Entry:
    tensors = {a.name for a in op.schema.args if a.is_tensor}
    if raw == "non_differentiable":
        return Entry(op, {}, frozenset(tensors), {}, None, frozenset())
    if isinstance(raw, str) and raw.startswith("not_implemented:"):
        return Entry(op, {}, frozenset(), dict.fromkeys(tensors, raw.split(":", 1)[1].strip()), None, frozenset())
    if not isinstance(raw, dict):
        raise FormulaError(f"{op.name}: an entry is a mapping, `non_differentiable` or `not_implemented: reason`")
    formulas: dict[tuple[str, ...], str] = {}
    without: set[str] = set()
    unavailable: dict[str, str] = {}
    for key, text in raw.items():
        if key in _SETTINGS:
            continue
        names = tuple(name.strip() for name in str(key).split(","))
        wrong = [n for n in names if n not in tensors]
        if wrong:
            raise FormulaError(f"{op.name}: '{wrong[0]}' is no tensor argument of {op.schema!r}")
        if text == "non_differentiable":
            without.update(names)
        elif str(text).startswith("not_implemented"):
            unavailable.update(dict.fromkeys(names, str(text).partition(":")[2].strip()))
        else:
            formulas[names] = text
    stated = {n for names in formulas for n in names} | without | set(unavailable)
    if stated != tensors:
        raise FormulaError(f"{op.name}: nothing said about {', '.join(sorted(tensors - stated))}")
    flags = raw.get("output_differentiability")
    return Entry(op, formulas, frozenset(without), unavailable, tuple(flags) if flags else None,
                 frozenset(raw.get("undefined_gradients", ())))  # fmt: skip


def differentiable_positions(op: Op) -> tuple[int, ...]:
    """Positions in the schema of the arguments that gradients flow to (or that raise when they should)."""
    entry = entries()[op.name]
    names = {n for key in entry.formulas for n in key} | set(entry.not_implemented)
    return tuple(i for i, arg in enumerate(op.schema.args) if arg.name in names)


def render(ops: Sequence[Op]) -> str:
    compiled = {op.name: {k: compile_formula(op, t) for k, t in entries()[op.name].formulas.items()} for op in ops}
    modules = sorted({m for fs in compiled.values() for formula in fs.values() for m in formula.imports})
    parts = [header("Gradients of the operators."), _IMPORTS]
    parts += [f"from meta.op.grad import {m} as grad_{m}\n" for m in modules]
    rules: list[str] = []
    for group in by_family(ops).values():
        for op in group:
            if differentiable_positions(op):
                parts.append(_function(op, compiled[op.name]))
                rules.append(_rule(op, compiled[op.name]))
    return "".join([*parts, "\n\nRULES: dict[str, GradRule] = {\n", *rules, "}\n"])


def _function(op: Op, formulas: Mapping[tuple[str, ...], Formula]) -> str:
    names = [*op.schema.names, *result_names(op, "y"), *result_names(op, "dy")]
    order = [op.schema.names[i] for i in differentiable_positions(op)]
    lines = [f"\n\ndef _{op.name}(needs: Any, {', '.join(f'{n}: Any' for n in names)}) -> tuple[Any, ...]:\n"]
    results: dict[str, str] = dict.fromkeys(order, "None")
    for count, (targets, formula) in enumerate(formulas.items()):
        wanted = " or ".join(f"needs[{order.index(t)}]" for t in targets)
        guarded = formula.source if len(order) == 1 else f"{formula.source} if {wanted} else None"
        if len(targets) == 1:
            results[targets[0]] = guarded
            continue
        nothing = ", ".join(["None"] * len(targets))
        lines.append(f"    g{count} = {formula.source} if {wanted} else ({nothing})\n")
        results.update({t: f"g{count}[{i}]" for i, t in enumerate(targets)})
    listed = ", ".join(results.values()) + ("," if len(results) == 1 else "")
    return "".join([*lines, f"    return ({listed})\n"])


def _rule(op: Op, formulas: Mapping[tuple[str, ...], Formula]) -> str:
    entry = entries()[op.name]
    values = {v for formula in formulas.values() for v in formula.values}
    ys = result_names(op, "y")
    count = -1 if op.outputs == ("*",) else len(ys)
    flows = [i for i, flag in enumerate(entry.outputs or [True] * max(count, 1)) if flag]
    facts = {
        "saved_args": _set(i for i, n in enumerate(op.schema.names) if n in values),
        "saved_outputs": _set(i for i, n in enumerate(ys) if n in values),
        "differentiable_outputs": _set(flows),
        "undefined": _set(entry.undefined),
        "unavailable": repr({op.schema.index[n]: why for n, why in entry.not_implemented.items()}),
    }
    if count != 1:
        facts["outputs"] = str(count)
    defaults = {"saved_args": "frozenset()", "saved_outputs": "frozenset()", "differentiable_outputs": "frozenset({0})",
                "undefined": "frozenset()", "unavailable": "{}"}  # fmt: skip
    listed = "".join(f", {k}={v}" for k, v in facts.items() if defaults.get(k) != v)
    return f'    "{op.name}": GradRule("{op.name}", _{op.name}, {differentiable_positions(op)!r}{listed}),\n'


def _set(items: Any) -> str:
    listed = sorted(items)
    return f"frozenset({{{', '.join(map(str, listed))}}})" if listed else "frozenset()"
