"""Implementations that are imported when they are first asked for: this package's dialects by family, and
plugins, which installed packages declare as entry points.

A package names a function, or a module, in its metadata:

    [project.entry-points."meta.dialects"]
    mine = "my_package.dialect:register"

`load` imports it, and calls it if it is callable, once in a process and only when something is looked up that a plugin
could have added. Reading the entry points of all installed packages costs 1 ms. Errors inside of such a package
are located at the line that called it, as those inside of meta are.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, distributions, entry_points
from importlib.util import find_spec
from typing import Final

from meta.backend.tvm.runtime import importing
from meta.errors import add_operator_module
from meta.locks import new_lock
from meta.progress import without_collection
from meta.records import record

DIALECTS = "meta.dialects"
"""The group of plugins that register dialects."""
OPERATORS = "meta.operators"
"""The group of plugins that define operators."""


class PluginWarning(UserWarning):
    """An installed plugin that cannot be loaded; everything else works without it."""


@record
class Plugin:
    """An entry point of an installed package. failure: why it could not be loaded, "" for a loaded one."""

    group: str
    name: str
    target: str
    package: str
    failure: str = ""


_lock = new_lock("plugins")
_started: set[str] = set()
_loaded: dict[str, tuple[Plugin, ...]] = {}


def load(group: str) -> tuple[Plugin, ...]:
    """Load the plugins of a group at the first call in a process, in the order of their packages and names.

    Returns what was loaded; while a plugin is being loaded, its own calls return (). A plugin that raises gives a
    PluginWarning that names its package, and the others are loaded."""
    plugins = _loaded.get(group)
    if plugins is not None:
        return plugins
    with _lock:
        if group in _started:
            return _loaded.get(group, ())
        _started.add(group)
        return _loaded.setdefault(group, tuple(map(_load, points(group))))


def points(group: str) -> list[EntryPoint]:
    """The entry points of a group, by package and name."""
    # Without a package that names the group, none are parsed: that takes longer than to read them.
    if not any(group in (each.read_text("entry_points.txt") or "") for each in distributions()):
        return []
    return sorted(entry_points(group=group), key=lambda point: (_package(point), point.name))


def _package(point: EntryPoint) -> str:
    """Name and version of the distribution that declares an entry point."""
    distribution = point.dist
    return f"{distribution.name} {distribution.version}" if distribution else "an unknown package"


def _load(point: EntryPoint) -> Plugin:
    plugin = Plugin(point.group, point.name, point.value, _package(point))
    try:
        target = point.load()
        if callable(target):
            target()
    # Code of a package that meta knows nothing about: whatever it raises must not stop a call of another operator.
    except Exception as error:  # noqa: BLE001
        failure = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"[plugins] '{point.name}' ({point.value}) of {plugin.package} in {point.group} raised {failure}; expected "
            "a module, or a function without parameters, that registers it; update or uninstall the package",
            PluginWarning,
            stacklevel=2,
        )
        return Plugin(point.group, point.name, point.value, plugin.package, failure)
    add_operator_module(root(point.module))
    return plugin


def root(module: str) -> str:
    """The package that a plugin's module is in, whose whole code counts as library code: the outermost one that is not
    shared by several distributions (a namespace package, which has no file)."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return next((name for name in names if getattr(find_spec(name), "origin", None)), module)


# --- this package's dialects: one module for each family, imported when one of its operators is first asked for -------

BUILT_IN: Final[tuple[str, ...]] = ("cudnn", "torch", "triton", "tvm", "reference")
"""Dialects of this package: packages under meta/op/dialect, each with a `DIALECT` and one module per family."""

DERIVING: Final = ("tvm", "reference")
"""Dialects that also have implementations for operators of families without a module (`Dialect.derived`)."""

_families: set[tuple[str, str]] = set()
"""(dialect, family) that need no import any more."""
_families_lock = new_lock("dialects")


def load_family(dialect: str, family: str) -> None:
    """Import the module of a dialect for a family of operators, if it exists and this machine can use the dialect, and
    let the dialect register what the module left out. A dialect with neither is not imported."""
    if (dialect, family) in _families:
        return
    with _families_lock, importing, without_collection(lasting=True):
        package = f"meta.op.dialect.{dialect}"
        spec = find_spec(package)
        if spec is not None:  # the dialect is part of this installation
            has_module = PathFinder.find_spec(f"{package}.{family}", spec.submodule_search_locations) is not None
            if has_module and import_module(package).DIALECT.unavailable() is None:
                import_module(f"{package}.{family}")
            if dialect in DERIVING:
                import_module(package).DIALECT.complete(family)
        _families.add((dialect, family))


def load_family_before_change(dialect: str, family: str) -> None:
    """As `load_family`, for a change from outside of the module. The module's own registrations find it among those
    that are being imported, and take no lock, which another thread that imports it may hold."""
    if dialect in BUILT_IN and f"meta.op.dialect.{dialect}.{family}" not in sys.modules:
        load_family(dialect, family)


def forget_families() -> None:
    """Look for modules again: a dialect may have become usable."""
    _families.clear()
