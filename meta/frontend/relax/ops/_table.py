"""The table of Relax's operators, by their names without "relax.". The modules of this folder fill it.

    @row("nn.rms_norm")
    def rms_norm(call: OpCall) -> Any: ...

A row reads every attribute of the call, as for Relay. Where a Relax operator means what Relay's means, with attributes
of the same names, its row is Relay's converter: `shared("nn.conv2d")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meta.frontend.relax.sizes import Shape
from meta.frontend.relay.convert.call import OpCall, converters
from meta.frontend.rows import RowTable
from meta.tracing.symbol import Symbol

table = RowTable("meta.frontend.relax.ops")
row, rows = table.row, table.enter


@dataclass(frozen=True, slots=True)
class Shared:
    """The row of an operator that Relay has too. relay_name: what Relay calls it."""

    relay_name: str

    def __call__(self, call: OpCall) -> Any:
        convert = converters.find(self.relay_name)
        assert convert is not None, self.relay_name
        if call.name == self.relay_name:
            return convert(call)
        renamed = OpCall(self.relay_name, call.args, call.attrs, call.place, call.builder, call.shapes)
        result = convert(renamed)
        renamed.check_all_read()
        for name in call.attrs:
            call.get(name)
        return result


def shared(*names: str, **relay_names: str) -> None:
    """Enter Relay's converters for operators of the same names, and for those called otherwise in Relay."""
    both = dict(zip(names, names, strict=True)) | relay_names
    table.enter({name: Shared(relay_name) for name, relay_name in both.items()})


def shape_of(call: OpCall, index: int) -> Shape:
    """Argument `index`, a shape. Raises NotSupportedError for another value."""
    value: Any = call.args[index]
    if isinstance(value, Symbol):
        return Shape(call.ints(value, "the shape"))
    if not isinstance(value, Shape):
        call.refuse(f"argument {index} is {value!r}", "a shape")
    return value


def number(call: OpCall, index: int, subject: str) -> Any:
    """Argument `index`, a number: a value of the program, or a constant tensor."""
    value: Any = call.args[index]
    if isinstance(value, Symbol):
        return call.number(value, subject)
    return float(value) if isinstance(value, float) else value


def tensor(call: OpCall, index: int) -> Any:
    """Argument `index`, a tensor. Raises NotSupportedError for another value."""
    value: Any = call.args[index] if index < len(call.args) else None
    if not isinstance(value, Symbol):
        call.refuse(f"argument {index} is {value!r}", "a tensor")
    return value
