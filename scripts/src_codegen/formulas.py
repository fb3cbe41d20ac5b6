"""meta/_generated/formulas.py: the entries of derivatives.yaml as Python, for reading without a YAML library."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.registry import Op
from scripts.src_codegen.gradients import raw_entries
from scripts.src_codegen.layout import by_family, header

_HEAD = """
# ruff: noqa: E501

from typing import Any

FORMULAS: dict[str, Any] = {
"""


def render(ops: Sequence[Op]) -> str:
    lines = [header("Gradient formulas as text."), _HEAD]
    for group in by_family(ops).values():
        lines.extend(f'    "{op.name}": {raw_entries()[op.name]!r},\n' for op in group)
    return "".join([*lines, "}\n"])
