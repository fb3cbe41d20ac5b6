"""meta/_generated/table.py: the names and aliases of the operators, available without importing their modules."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.registry import Op
from scripts.src_codegen.layout import by_family, header


def render(ops: Sequence[Op]) -> str:
    lines = [
        header("Operator names with their families, and aliases with the operator that each names."),
        "\nFAMILIES: dict[str, str] = {\n",
    ]
    for family, group in by_family(ops).items():
        lines.extend(f'    "{op.name}": "{family}",\n' for op in group)
    lines.append("}\n\nALIASES: dict[str, str] = {\n")
    lines.extend(f'    "{alias}": "{op.name}",\n' for op in ops for alias in op.aliases)
    return "".join([*lines, "}\n"])
