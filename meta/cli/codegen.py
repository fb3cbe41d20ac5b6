"""`python -m meta codegen PACKAGE [--check] [--output FILE]`: typed functions of a package's operators.

The generated module belongs to the package and not to stubs of meta: a stub of `meta.ops` could name the operators of
one package only, since two packages would install the same file.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from meta.cli.modules import declared_in, is_within
from meta.errors import ArgumentError, RegistryError, did_you_mean
from meta.inspect.sources import shown
from meta.op import plugins
from meta.op.codegen.python_module import MARK, typed_module
from meta.op.registry import USER, Op, all_ops

FILE = "functions.py"
"""The default file in the folder of the package."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("package", metavar="PACKAGE", help="a package that defines operators, or its distribution")
    parser.add_argument("--check", action="store_true", help="write nothing; print what differs, exit status 1 if any")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help=f"the module to write; {FILE} of the package if unset"
    )


def run(options: argparse.Namespace) -> int:
    """Write the module of typed functions, or compare it with `--check`; returns 1 if that differs.

    Raises ArgumentError for an unknown package and for a file that was not generated, RegistryError for a package
    without operators."""
    package = importable(options.package)
    folder = _folder(package)
    path = _output(package, folder, options.output)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.exists() and MARK not in before:
        problem = f"{shown(path)} exists and was not generated"
        raise ArgumentError("codegen", problem, "a new file, or one that codegen wrote", "pass --output FILE")
    with _placeholder(_module_name(package, folder, path)):
        ops = operators_of(package)
    inside = sorted({op.declare.__module__ for op in ops if declared_in(op, package)})
    text = typed_module(package, ops, inside or [package])
    if options.check:
        return compare(path, before, text)
    count = f"{len(ops)} operator{'s' if len(ops) > 1 else ''} of {package}"
    if text == before:
        print(f"{shown(path)} is up to date: {count}")
        return 0
    path.write_text(text, encoding="utf-8")
    print(f"wrote {shown(path)}: {count}")
    if folder is not None and not (folder / "py.typed").exists():
        print(
            f"{package} has no file py.typed, without which type checkers ignore the types of an installed package: "
            f"create an empty {shown(folder / 'py.typed')} and add it to the package's data"
        )
    return 0


def _output(package: str, folder: Path | None, output: Path | None) -> Path:
    """The file to write. Raises ArgumentError for a single module without `--output`."""
    if output is not None:
        return output
    if folder is None:
        raise ArgumentError("codegen", f"'{package}' is one module", "a package, or --output FILE")
    return folder / FILE


def compare(path: Path, before: str, text: str) -> int:
    """Print how a file differs from the text that it should have; 1 if it does."""
    if text == before:
        print(f"{shown(path)} is up to date")
        return 0
    lines = (before.splitlines(), text.splitlines())
    print("\n".join(difflib.unified_diff(*lines, f"{shown(path)} (on disk)", f"{shown(path)} (fresh)", lineterm="")))
    return 1


def importable(name: str) -> str:
    """The package called `name`, or the package that a distribution or an entry point of that name loads.

    Raises ArgumentError if there is none."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    if all(part.isidentifier() for part in name.split(".")) and _spec(name) is not None:
        return name
    points = plugins.points(plugins.OPERATORS)
    by_name = {each: point.module for point in points for each in (point.name, point.dist.name if point.dist else "")}
    if name in by_name:
        return plugins.root(by_name[name])
    hint = did_you_mean(name, [*by_name, *(point.module.partition(".")[0] for point in points)])
    expected = "an installed package, or one in the working directory"
    raise ArgumentError(
        "codegen", f"no package and no entry point of {plugins.OPERATORS} is called '{name}'", expected, hint
    )


def _spec(name: str) -> Any:
    try:
        return find_spec(name)
    except ModuleNotFoundError:  # a package around it
        return None


def _folder(package: str) -> Path | None:
    """The folder of a package; None for a single module."""
    spec = _spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


def _module_name(package: str, folder: Path | None, path: Path) -> str:
    """The name that the file has as a module of the package, "" for one outside of it."""
    if folder is None or not path.resolve().is_relative_to(folder.resolve()):
        return ""
    return ".".join([package, *path.resolve().relative_to(folder.resolve()).with_suffix("").parts])


class _Anything(ModuleType):
    """A module in which every attribute exists."""

    __all__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@contextmanager
def _placeholder(name: str) -> Generator[None, None, None]:
    """While the package is imported, replaces the module to be generated: it may be missing, and one from before may
    name operators that no longer exist."""
    if not name or name in sys.modules:
        yield
        return
    sys.modules[name] = _Anything(name)
    try:
        yield
    finally:
        del sys.modules[name]


def operators_of(package: str) -> list[Op]:
    """The operators that a package defines: in its modules, or under its name.

    Raises ArgumentError if it cannot be imported, RegistryError if it has none."""
    try:
        import_module(package)
    except ImportError as error:
        raise ArgumentError("codegen", f"'{package}' cannot be imported: {error}", "a package that can") from error
    for plugin in plugins.load(plugins.OPERATORS):
        if plugin.failure and is_within(plugin.target.partition(":")[0], package):
            raise RegistryError("codegen", f"{plugin.target} raised {plugin.failure}", "a module that can be imported")
    ops = [op for op in all_ops() if op.family == USER and (op.namespace == package or declared_in(op, package))]
    if not ops:
        expected = "operators of meta.define in modules that the package, or its entry point of meta.operators, imports"
        raise RegistryError("codegen", f"'{package}' defines no operators", expected)
    return ops
