"""meta/_generated/gradients/<family>.py: gradient functions compiled from meta/op/grad/derivatives.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from meta.errors import did_you_mean
from meta.op.grad.entry import GradientEntry, forward_source, function_source, read_entry, rule_facts
from meta.op.grad.formula import Formula, FormulaError
from meta.op.registry import Op, all_ops
from scripts.src_codegen.layout import by_family, header

TABLE = Path(__file__).resolve().parents[2] / "meta/op/grad/derivatives.yaml"
_IMPORTS = """
# ruff: noqa: A002, E501
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import Any

import meta
"""


@cache
def raw_entries() -> Mapping[str, Any]:
    """The entries of derivatives.yaml by operator."""
    return _by_operator(yaml.load(TABLE.read_text(encoding="utf-8"), Loader=_UniqueLoader))


@cache
def entries() -> Mapping[str, GradientEntry]:
    """The checked table: every operator has an entry, and every tensor argument a formula or a reason for none."""
    raw = raw_entries()
    ops = {op.name: op for op in all_ops()}
    unknown = set(raw) - set(ops)
    if unknown:
        name = sorted(unknown)[0]
        raise FormulaError("derivatives.yaml", f"'{name}' is not an operator", remedy=did_you_mean(name, ops))
    missing = sorted(set(ops) - set(raw))
    if missing:
        raise FormulaError(
            "derivatives.yaml",
            f"no entry for {', '.join(missing)}",
            remedy="write formulas or `name: non_differentiable`",
        )
    return {name: read_entry(op, raw[name]) for name, op in ops.items()}


def _by_operator(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The table with an entry for each name of a key, and of ranks 1, 2 and 3 in place of one that contains {rank}."""
    out: dict[str, Any] = {}
    for name, entry in ((name, entry) for names, entry in raw.items() for name in names.split(", ")):
        for rank in ("1", "2", "3") if _RANK in name else ("",):
            key = name.replace(_RANK, rank)
            if key in out:
                raise FormulaError("derivatives.yaml", f"'{key}' occurs twice")
            out[key] = _filled(entry, rank)
    return out


_RANK = "{rank}"


def _filled(entry: Any, rank: str) -> Any:
    """An entry with `rank` in place of {rank} in its formulas."""
    if isinstance(entry, dict):
        return {key: _filled(value, rank) for key, value in cast("dict[str, Any]", entry).items()}
    return entry.replace(_RANK, rank) if isinstance(entry, str) else entry


class _UniqueLoader(yaml.SafeLoader):
    """Rejects duplicate keys; YAML silently uses the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [k.value for k, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise FormulaError("derivatives.yaml", f"'{key}' occurs twice")
        return super().construct_mapping(node, deep)


def differentiable_positions(op: Op) -> tuple[int, ...]:
    """Schema positions of the arguments with a gradient, or with an error in its place."""
    return entries()[op.name].positions


def render_families(ops: Sequence[Op]) -> Mapping[str, str]:
    """The modules of the families, by path."""
    return {
        f"meta/_generated/gradients/{family}.py": _family(family, group) for family, group in by_family(ops).items()
    }


def _family(family: str, ops: Sequence[Op]) -> str:
    table = [entries()[op.name] for op in ops if entries()[op.name].positions]
    if not table:
        return header(f"Gradients of the operators of the family {family}: none.")
    modules = sorted({m for entry in table for formula in entry.compiled() for m in formula.imports})
    parts = [header(f"Gradients of the operators of the family {family}."), _IMPORTS]
    parts += [f"from meta.op.grad import {m} as grad_{m}\n" for m in modules]
    parts.append("from meta.op.grad.rule import GradRule, add_rules\n")
    for entry in table:
        parts.append("\n\n" + function_source(entry))
        if isinstance(entry.forward, Formula):
            parts.append("\n\n" + forward_source(entry))
    return "".join([*parts, "\n\nadd_rules([\n", *map(_rule, table), "])\n"])


def _rule(entry: GradientEntry) -> str:
    listed = "".join(f", {name}={_text(value)}" for name, value in rule_facts(entry).items())
    name = entry.op.name
    if entry.forward is not None:
        listed += f", forward=_{name}_forward" if isinstance(entry.forward, Formula) else f', forward="{entry.forward}"'
    return f'    GradRule("{name}", _{name}, {entry.positions!r}{listed}),\n'


def _text(value: Any) -> str:
    """`repr`, with sets in order."""
    if not isinstance(value, frozenset):
        return repr(value)
    return f"frozenset({{{', '.join(map(str, sorted(value)))}}})" if value else "frozenset()"  # pyright: ignore[reportUnknownArgumentType]
