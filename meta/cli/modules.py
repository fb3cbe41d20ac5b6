"""Modules that define operators: the option `--import`, and which operators a package declares."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from meta.errors import ArgumentError
from meta.op.registry import Op


def declared_in(op: Op, package: str) -> bool:
    """Whether a module of a package declares the operator."""
    return is_within(op.declare.__module__, package)


def is_within(module: str, package: str) -> bool:
    """Whether a module is the package, or inside it."""
    return module == package or module.startswith(f"{package}.")


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """Define `--import MODULE`."""
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE",
        help="a module to import first, which defines operators (may be repeated)",
    )  # fmt: skip


def import_modules(names: list[str]) -> tuple[str, ...]:
    """Import the modules, also from the working directory, and return their names.

    Raises ArgumentError for one that does not exist."""
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            what = f"module '{name}' cannot be imported: {error}"
            raise ArgumentError("--import", what, "an installed module, or one in the working directory") from error
    return tuple(names)
