"""Submodules that load when they are first asked for: `import meta` suffices for `meta.ir.parser.parse(...)`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """The module `name` of a package, for the package's `__getattr__`. Raises AttributeError where there is none."""
    whole = f"{package}.{name}"
    if name.startswith("_") or find_spec(whole) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(whole)
