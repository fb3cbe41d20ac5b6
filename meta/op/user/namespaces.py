"""Namespaces of operators: a package that defines `mypkg::swiglu` has its function at `meta.ops.mypkg.swiglu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.errors import did_you_mean
from meta.op import plugins
from meta.op.registry import SEPARATOR


class Namespace:
    """The operators of one package, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            plugins.load(plugins.OPERATORS)
            if name in vars(self):
                return vars(self)[name]
        hint = did_you_mean(name, functions(self._name))
        raise AttributeError(f"no operator is called '{self._name}{SEPARATOR}{name}'. {hint}".strip())

    def __dir__(self) -> list[str]:
        return functions(self._name)

    def __repr__(self) -> str:
        return f"<operators of {self._name}: {', '.join(functions(self._name))}>"


_namespaces: dict[str, Namespace] = {}


def find(name: str) -> Namespace | None:
    """The namespace called `name`, if a package has defined operators in it."""
    return _namespaces.get(name)


def names() -> list[str]:
    """The names of the namespaces."""
    return sorted(_namespaces)


def functions(namespace: str) -> list[str]:
    """The names of the functions in a namespace."""
    return sorted(name for name in vars(_namespaces[namespace]) if not name.startswith("_"))


def add(namespace: str, name: str, function: Callable[..., Any]) -> None:
    """Put the public function of an operator into a namespace, which is created if need be."""
    setattr(_namespaces.setdefault(namespace, Namespace(namespace)), name, function)


def remove(namespace: str, name: str) -> None:
    """Remove a function, and the namespace if it was the last one."""
    delattr(_namespaces[namespace], name)
    if not functions(namespace):
        del _namespaces[namespace]
