"""The table Relay operator -> converter: what the declarations name, and the small functions in `ops/`.

    @converter("nn.dense")
    def dense(call: OpCall) -> Any: ...

An operator whose declaration has `relay="tanh"` and that no function here converts takes its tensors in order and its
attributes by name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from meta.frontend.relay.call import OpCall
from meta.interpreter.invoke import invoke, state
from meta.op.registry import Op, all_ops

Converter = Callable[[OpCall], Any]
_converters: dict[str, Converter] = {}
_declared: dict[str, Converter] = {}
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
    return _converters.get(name) or _declared.get(name)


def supported() -> list[str]:
    """The names of all Relay operators that are converted, sorted."""
    _load()
    return sorted({*_converters, *_declared})


def _load() -> None:
    if _loaded:
        return
    _loaded.append(True)
    package = import_module("meta.frontend.relay.ops")
    for module in iter_modules(package.__path__):
        import_module(f"meta.frontend.relay.ops.{module.name}")
    for op in all_ops():
        if op.relay:
            _declared.setdefault(op.relay, by_declaration(op))


def by_declaration(op: Op) -> Converter:
    """Tensors in order, attributes by name; what the call does not give has the operator's own default."""

    def convert(call: OpCall) -> Any:
        roles = [arg.type.role for arg in op.schema.args]
        required = sum(1 for arg in op.schema.args if arg.is_tensor and arg.required)
        most = sum(1 for arg in op.schema.args if arg.is_tensor)
        given = iter(call.tensors(required, most) if "tensors" not in roles else (call.tuple(),))
        values: list[Any] = []
        for arg in op.schema.args:
            if arg.is_tensor:
                values.append(next(given, arg.default))
            else:
                values.append(call.get(arg.name, arg.default))
        return invoke(state(op), *values)

    return convert
