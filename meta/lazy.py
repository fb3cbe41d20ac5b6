"""Imports: names of a package that are imported at their first use, so that `import meta` takes milliseconds, and
modules by paths of former releases and of other libraries.

    if TYPE_CHECKING:
        from meta.vm.executor import compile as compile
    else:
        __getattr__, __dir__ = exports(__name__, {"meta.vm.executor": ("compile",)})

Type checkers read the first branch: they know every name, and report names that do not exist.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from meta.progress import without_collection

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc would cost 4 ms to import

Names = tuple[Callable[[str], Any], Callable[[], list[str]]]
"""The `__getattr__` and the `__dir__` of a package."""


def exports(package: str, homes: Mapping[str, Sequence[str]], adapt: Callable[[Any], Any] | None = None) -> Names:
    """A package that offers names of other modules: module -> names. The home of a submodule is the package itself.

    adapt: applied to functions of `meta.functional`."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            return missing(package, name)
        with without_collection(lasting=True):
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
        if name.startswith("_") or not module_exists(package, name):
            return missing(package, name)
        return import_module(path)

    def listed() -> list[str]:
        from pkgutil import iter_modules

        return [module.name for module in iter_modules(sys.modules[package].__path__)]

    return get, listed


def missing(package: str, name: str) -> Any:
    """The stand-in of another library's module (see meta.spellings). Raises AttributeError, with what to write, for the
    other names that the package does not have."""
    # `from meta.nn import layer` asks for the attribute before it imports the module.
    has_modules = "__path__" in vars(sys.modules[package])
    if name.startswith("_") or (has_modules and module_exists(package, name)):
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    from meta import spellings

    return spellings.missing_name(package, name)


def module_exists(package: str, name: str) -> bool:
    """Whether a package has a module of this name in its folder."""
    return PathFinder.find_spec(f"{package}.{name}", list(sys.modules[package].__path__)) is not None


# --- other paths of modules -------------------------------------------------------------------------------------------

MOVED: Final = {
    "meta.definition": "meta.op.user.definition",
    "meta.ir.module": "meta.ir.builder",
    "meta.op.namespaces": "meta.op.user.namespaces",
    "meta.op.registration": "meta.op.user.dialects",
}
"""Former path -> path of a module. A former path stays for one release, in which its first import gives a
DeprecationWarning with the new path."""


class _MovedModules(Loader):
    """Finds and loads modules by their former paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Python creates a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is now {MOVED[name]}", DeprecationWarning, stacklevel=2)
        sys.modules[name] = import_module(MOVED[name])  # the import system returns what it finds there


class _OtherModules:
    """Finds no module, as the last finder: an import such as `import meta.nn.functional as F`, of a module that only
    another library has, says where its names are."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("meta."):
            from meta.spellings.attributes import refuse_module

            refuse_module(name)


sys.meta_path.insert(0, _MovedModules())  # a folder that Git left behind would be found as an empty package
sys.meta_path.append(_OtherModules())
