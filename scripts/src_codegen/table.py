"""meta/_generated/table.py: the names of the operators, available without importing their modules."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.registry import Op
from scripts.src_codegen.signature import by_family, header


def render(ops: Sequence[Op]) -> str:
    lines = [header("Operator names and their families."), "\nFAMILIES: dict[str, str] = {\n"]
    for family, group in by_family(ops).items():
        lines.extend(f'    "{op.name}": "{family}",\n' for op in group)
    return "".join([*lines, "}\n"])
