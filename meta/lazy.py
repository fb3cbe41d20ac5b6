"""Names of a package that are imported at their first use, so that `import meta` takes milliseconds.

    if TYPE_CHECKING:
        from meta.vm.executor import compile as compile
    else:
        __getattr__, __dir__ = exports(__name__, {"meta.vm.executor": ("compile",)})

Type checkers read the first branch: they know every name, and report names that do not exist.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from meta.collection import without_collection

Names = tuple[Callable[[str], Any], Callable[[], list[str]]]
"""The `__getattr__` and the `__dir__` of a package."""


def exports(package: str, homes: Mapping[str, Sequence[str]], adapt: Callable[[Any], Any] | None = None) -> Names:
    """A package that offers names of other modules: module -> names. The home of a submodule is the package itself.

    adapt: applied to functions of `meta.functional`."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with without_collection():
            value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        if adapt is not None and home.startswith("meta.functional"):
            value = adapt(value)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home_of)


def submodules(package: str) -> Names:
    """A package that offers its submodules: `import meta` suffices for `meta.ir.parser.parse(...)`."""

    def get(name: str) -> Any:
        path = f"{package}.{name}"
        if name.startswith("_") or find_spec(path) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(path)

    return get, lambda: [module.name for module in iter_modules(sys.modules[package].__path__)]
