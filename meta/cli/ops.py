"""`python -m meta ops [NAME ...]`: the operators and their reference."""

from __future__ import annotations

import argparse

from meta.op.registry import Op, all_ops, get


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators to describe; without, list all by family")


def run(options: argparse.Namespace) -> int:
    """Print the list, or the reference of the named operators."""
    if options.names:
        print("\n\n".join(_describe(get(name)) for name in options.names))
        return 0
    families: dict[str, list[str]] = {}
    for op in all_ops():
        families.setdefault(op.family, []).append(op.name)
    for family, names in families.items():
        print(f"{family}: {', '.join(names)}")
    return 0


def _describe(op: Op) -> str:
    lines = [f"{op.name}{repr(op.schema)[len(op.schema.name) :]}", "  " + " ".join(op.doc.split())]
    lines += [f"  {arg.name}: {arg.doc}" for arg in op.schema.args]
    return "\n".join([*lines, f"  pattern {op.pattern}; mixed precision {op.amp}; family {op.family}"])
