"""The table of converters by Relay's names of operators. The modules in `ops/` fill it.

@converter("nn.dense")
def dense(call: OpCall) -> Any: ...
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from meta.frontend.relay.convert.call import OpCall

Converter = Callable[[OpCall], Any]
_converters: dict[str, Converter] = {}
_loaded: list[bool] = []


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register the decorated function for the Relay operators called `names`."""

    def register(function: Converter) -> Converter:
        for name in names:
            assert name not in _converters, name
            _converters[name] = function
        return function

    return register


def find(name: str) -> Converter | None:
    """The converter of a Relay operator, None when it is not supported."""
    _load()
    return _converters.get(name)


def supported() -> list[str]:
    """The names of all Relay operators that are converted, sorted."""
    _load()
    return sorted(_converters)


def _load() -> None:
    if _loaded:
        return
    _loaded.append(True)
    package = import_module("meta.frontend.relay.ops")
    for module in iter_modules(package.__path__):
        import_module(f"meta.frontend.relay.ops.{module.name}")
