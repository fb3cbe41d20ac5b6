"""Submodules imported at their first use: `import meta` suffices for `meta.ir.parser.parse(...)`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """Import a submodule, for the `__getattr__` of its package. Raises AttributeError if it does not exist."""
    path = f"{package}.{name}"
    if name.startswith("_") or find_spec(path) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(path)
