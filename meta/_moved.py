"""Import paths of modules that have moved: `import meta.definition` finds `meta.op.user.definition`.

A path stays for one release, in which its first import gives a DeprecationWarning with the new path.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc would cost 4 ms to import

PATHS: Final = {
    "meta.definition": "meta.op.user.definition",
    "meta.ir.module": "meta.ir.builder",
    "meta.op.namespaces": "meta.op.user.namespaces",
    "meta.op.registration": "meta.op.user.dialects",
}
"""Former path -> path of a module."""


class _Finder(Loader):
    """Finds and loads modules by their former paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in PATHS else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Python creates a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is now {PATHS[name]}", DeprecationWarning, stacklevel=2)
        sys.modules[name] = import_module(PATHS[name])  # the import system returns what it finds there


sys.meta_path.insert(0, _Finder())  # a folder that Git left behind would be found as an empty package
