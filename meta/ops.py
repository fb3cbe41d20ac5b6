"""Operators by name: `meta.ops.mypkg.swiglu` in a package that defines `mypkg::swiglu`, and `meta.ops.softmax` for one
without a namespace, which is also `meta.softmax`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import meta
from meta.errors import did_you_mean
from meta.op import plugins, registry
from meta.op.user import namespaces

if TYPE_CHECKING:  # editors complete these; operators of other packages are known at run time
    from meta._generated.functions import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if namespaces.find(name) is None and name not in registry.names() and not name.startswith("_"):
        plugins.load(plugins.OPERATORS)
    namespace = namespaces.find(name)
    if namespace is not None:
        return namespace
    operators = registry.names()
    if name in operators:
        return getattr(meta, name)
    hint = did_you_mean(name, [*operators, *namespaces.names()])
    raise AttributeError(f"module 'meta.ops' has no operator or namespace {name!r}. {hint}".strip())


def __dir__() -> list[str]:
    plugins.load(plugins.OPERATORS)  # completion lists the namespaces of installed packages
    return sorted([*registry.names(), *namespaces.names()])
