"""meta/_generated/symbolic.py: typed builders of IR calls, for passes and frontends."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.registry import Op
from scripts.src_codegen.signature import by_family, definition, header, parameter

_IMPORTS = """
# Each function records one call in a builder, its arguments normalised by the schema, and returns the variable bound to
# it (or the value of an operator that has one without a kernel).
# ruff: noqa: A001, A002, E501

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from meta.ir.type import Value
from meta.op.registry import get

if TYPE_CHECKING:
    from meta.device import Device
    from meta.ir.builder import Builder
    from meta.ir.dim import Dim
    from meta.ir.expr import Atom, Var

    DeviceLike = Device | str
    DTypeLike = Any


def _call(bb: Builder, name: str, *args: Any) -> Any:
    op = get(name)
    made = bb.call_expr(op, op.schema.bind(name, args, {}))
    return made.type.value if isinstance(made.type, Value) else bb.emit(made)
"""


def render(ops: Sequence[Op]) -> str:
    parts = [header("Builders of IR calls, one an operator."), _IMPORTS]
    for group in by_family(ops).values():
        parts.extend(map(_builder, group))
    return "".join(parts)


def _builder(op: Op) -> str:
    head = definition(op.name, ["bb: Builder", *(parameter(a, "Atom") for a in op.schema.args)], "Var")
    return f'\n\n{head}\n    return _call(bb, "{op.name}", {", ".join(op.schema.names)})\n'
