"""meta/_generated/table.py: the names and aliases of the operators and the composed functions, available without
importing their modules."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

import meta.functional
from meta.op.registry import Op
from scripts.src_codegen.layout import by_family, header


def render(ops: Sequence[Op]) -> str:
    lines = [
        header("Families of operators, operators of aliases, and modules of composed functions, by name."),
        "\nFAMILIES: dict[str, str] = {\n",
    ]
    for family, group in by_family(ops).items():
        lines.extend(f'    "{op.name}": "{family}",\n' for op in group)
    lines.append("}\n\nALIASES: dict[str, str] = {\n")
    lines.extend(f'    "{alias}": "{op.name}",\n' for op in ops for alias in op.aliases)
    lines.append("}\n\nFUNCTIONS: dict[str, str] = {\n")
    modules = (f"{meta.functional.__name__}.{module.name}" for module in iter_modules(meta.functional.__path__))
    lines.extend(f'    "{name}": "{module}",\n' for module in sorted(modules) for name in public_names(module))
    return "".join([*lines, "}\n"])


def public_names(module: str) -> Sequence[str]:
    """The functions that a module of `meta.functional` gives to the package: its `__all__`."""
    return sorted(getattr(import_module(module), "__all__", ()))
