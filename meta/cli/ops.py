"""`python -m meta ops`: the operators by family, or which parts each one has and which are missing.

Operators of installed packages (entry points of meta.operators) and of `--import` are included."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase

from meta.cli.modules import add_import_option, declared_in, import_modules
from meta.cli.text import table, wrapped
from meta.errors import ArgumentError, did_you_mean
from meta.inspect.checklist import PARTS, Part, checklist
from meta.inspect.description import describe
from meta.ir.type import PATTERNS
from meta.op import plugins
from meta.op.registry import Op, all_ops

Checked = Mapping[str, Mapping[str, Part]]
"""Operator -> part -> its state."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help="operators of this name (with * and ?) or family, or declared in this package (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--pattern",
        choices=PATTERNS,
        metavar="NAME",
        help=f"operators that fuse by this pattern: {', '.join(PATTERNS)}",
    )
    parser.add_argument("--parts", action="store_true", help="print which parts each operator has")
    parser.add_argument(
        "--missing", metavar="PART,...", type=lambda text: tuple(text.split(",")),
        help=f"print the operators that lack one of these parts; exit status 1 if any does: {', '.join(PARTS)}",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the parts as JSON")
    add_import_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list, or the parts. Returns 1 if an operator lacks a part that `--missing` names.

    Raises ArgumentError for an unknown part, and for an `--only` that no operator matches."""
    modules = import_modules(options.modules)
    plugins.load(plugins.OPERATORS)
    ops = _selected(options.only, options.pattern)
    if not (options.parts or options.json or options.missing):
        print(_list(ops))
        return 0
    names = _known_parts(options.missing) if options.missing else PARTS
    checked: Checked = {op.name: _parts_of(op, names, modules) for op in ops}
    lacking = {name: parts for name, parts in checked.items() if _missing(parts)}
    shown = lacking if options.missing else checked
    if options.json:
        print(
            json.dumps(
                {name: {p: asdict(part) for p, part in parts.items()} for name, parts in shown.items()}, indent=2
            )
        )
    else:
        parts = (
            _table(names, shown),
            _summary(names, checked),
            _reasons(checked, options.missing),
            _remedies(lacking, options.missing),
        )
        print("\n".join(filter(None, parts)))
    return int(bool(options.missing and lacking))


def _selected(only: Sequence[str], pattern: str | None) -> list[Op]:
    """The operators that the options select. Raises ArgumentError for a name that none matches."""
    ops = [op for op in all_ops() if pattern in (None, op.pattern)]
    if not only:
        return ops
    for name in only:
        if not any(_matches(op, name) for op in ops):
            hint = did_you_mean(name, {n for op in ops for n in (op.name, op.family)})
            raise ArgumentError("--only", f"no operator matches {name!r}", "a name, a family or a package", hint)
    return [op for op in ops if any(_matches(op, name) for name in only)]


def _matches(op: Op, name: str) -> bool:
    return fnmatchcase(op.name, name) or name == op.family or declared_in(op, name)


def _list(ops: Sequence[Op]) -> str:
    families: dict[str, list[str]] = {}
    for op in ops:
        families.setdefault(op.family, []).append(op.name)
    return "\n".join(wrapped(f"{family}: {', '.join(names)}", 0, 2) for family, names in families.items())


def _known_parts(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in PARTS:
            raise ArgumentError("--missing", f"no part is called {name!r}", ", ".join(PARTS), did_you_mean(name, PARTS))
    return tuple(names)


def _parts_of(op: Op, names: Sequence[str], modules: Sequence[str]) -> dict[str, Part]:
    parts = checklist(describe(op, modules=modules))
    return {name: parts[name] for name in names}


def _missing(parts: Mapping[str, Part]) -> dict[str, Part]:
    return {name: part for name, part in parts.items() if part.state == "missing"}


_CELLS = {"not needed": "-", "missing": "missing", "unknown": "?"}


def _table(names: Sequence[str], shown: Checked) -> str:
    rows = [[op, *(_cell(name, parts[name]) for name in names)] for op, parts in shown.items()]
    return table(["operator", *names], rows) if rows else ""


def _cell(name: str, part: Part) -> str:
    detail = part.note if name in ("samples", "amp") else "yes"
    return _CELLS.get(part.state, detail)


def _summary(names: Sequence[str], checked: Checked) -> str:
    """How many operators lack each part, and why that is unknown where it is."""
    lines = [f"of {len(checked)} operators lack " + ", ".join(f"{name} {_count(name, checked)}" for name in names)]
    for name in names:
        reasons = {parts[name].note for parts in checked.values() if parts[name].state == "unknown"}
        lines += [f"{name} unknown: {reason}" for reason in sorted(reasons)]
    return "\n" + "\n".join(map(wrapped, lines))


def _count(name: str, checked: Checked) -> int:
    return sum(parts[name].state == "missing" for parts in checked.values())


def _reasons(checked: Checked, with_reasons: object) -> str:
    """Which operators do without a part that `--missing` asks for, by reason."""
    if not with_reasons:
        return ""
    groups: dict[tuple[str, str], list[str]] = {}
    for op, parts in checked.items():
        for name, part in parts.items():
            if part.state == "not needed":
                groups.setdefault((name, part.note), []).append(op)
    lines = [f"no {name} ({reason}): {', '.join(ops)}" for (name, reason), ops in sorted(groups.items())]
    return "\n" + "\n".join(wrapped(line, 0, 4) for line in lines) if lines else ""


def _remedies(lacking: Checked, with_remedies: object) -> str:
    """The missing parts of each operator and how to add them, where `--missing` asks for it."""
    if not with_remedies or not lacking:
        return ""
    lines = [
        wrapped(f"{op}: {name}: {part.note}. To add it: {part.remedy}", 0, 4)
        for op, parts in lacking.items()
        for name, part in _missing(parts).items()
    ]
    return "\n" + "\n".join(lines)
