"""Which operators have gradients, are elementwise or linear, as torch's table of derivatives says it of ATen's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torchgen
import yaml

from meta.frontend.torch import aten
from meta.frontend.torch.aten._row import Direct
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op, get, names

LINEAR_BY_HAND = {"alias", "stack"}
"""ATen's operators whose tangents torch computes by a formula that says the same as `auto_linear`."""


@cache
def entries() -> dict[str, list[dict[str, Any]]]:
    """The entries of torch's table by the base name of the operator."""
    path = Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml"
    out: dict[str, list[dict[str, Any]]] = {}
    for entry in yaml.safe_load(path.read_text()):
        out.setdefault(entry["name"].partition("(")[0].partition(".")[0], []).append(entry)
    return out


def rows() -> Iterator[tuple[str, Op, dict[str, Any]]]:
    """(ATen's base name, the operator of meta that it is, the first entry of torch's table)."""
    operators = names()
    for name, row in aten.rows().items():
        function = row.function if isinstance(row, Direct) else ""
        if function in operators and name in entries() and "dispatch" not in entries()[name][0]:
            yield name, get(function), entries()[name][0]


def formulas(entry: dict[str, Any]) -> dict[str, str]:
    """The formulas of arguments in an entry of torch's table."""
    settings = ("name", "result", "output_differentiability", "dispatch")
    return {k: v for k, v in entry.items() if k not in settings and isinstance(v, str) and not k.startswith("result")}


def test_the_table_covers_most_of_it() -> None:
    assert sum(1 for _ in rows()) > 60


def test_operators_have_gradients_where_torch_has() -> None:
    wrong: list[str] = []
    for name, op, entry in rows():
        texts = formulas(entry).values()
        differentiable = any(not text.startswith(("non_differentiable", "not_implemented")) for text in texts)
        differentiable = differentiable and entry.get("output_differentiability", [True])[0]
        rule = gradient_rule(op.name)
        if differentiable != (rule is not None):
            wrong.append(f"{name} is {op.name}, in torch {'' if differentiable else 'not '}differentiable")
    assert not wrong


def test_elementwise_operators_are_the_same_as_in_torch() -> None:
    wrong = [
        f"{name} is {op.name}, of pattern {op.pattern}"
        for name, op, entry in rows()
        if entry.get("result") == "auto_element_wise" and op.pattern not in ("elemwise", "broadcast")
    ]
    assert not wrong


def test_linear_operators_are_linear_in_torch() -> None:
    wrong: list[str] = []
    for name, op, entry in rows():
        rule = gradient_rule(op.name)
        if rule is not None and rule.forward == "linear" and name not in LINEAR_BY_HAND:
            marks = {"auto_linear"} & {str(e.get("result")) for e in entries()[name]}
            wrong += [] if marks else [f"{name} is {op.name}: {entry.get('result')}"]
    assert not wrong
