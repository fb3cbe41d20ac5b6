"""meta/_generated/functions.py: the typed public functions, which are also the eager fast path."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.codegen.functions import remembered_items, typed_function
from meta.op.registry import Op
from scripts.src_codegen.layout import by_family, header

_IMPORTS = """
# A call looks up a runner by the types of its arguments; everything else happens once, in meta.eager.call.
# ruff: noqa: A001, A002, E501
# A number among the operands has no type to look up: the AttributeError sends the call the general way.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Sequence
from marshal import dumps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from meta._generated.methods import TensorMethods
from meta.eager.tape import record
from meta.eager.call import invoke, state
from meta.eager.known_items import KnownItems
from meta.op.registry import get
from meta.modes import modes, scopes

if TYPE_CHECKING:
    from meta.device import Device
    from meta.dim import Dim
    from meta.dtype import Number
    from meta.eager.ndarray import NDArray

    DeviceLike = Device | str
    DTypeLike = Any

T = TypeVar("T", bound=TensorMethods)
"""


def render(ops: Sequence[Op]) -> str:
    from scripts.src_codegen.gradients import differentiable_positions

    parts = [header("The public operators, eager and traced."), _IMPORTS]
    for family, group in by_family(ops).items():
        parts.append(f"\n# --- {family} " + "-" * (113 - len(family)) + "\n")
        for op in group:
            parts.append(_function(op, differentiable_positions(op)))
            parts.extend(f"\n{alias} = {op.name}\n" for alias in op.aliases)
    return "".join(parts)


def _function(op: Op, differentiable: Sequence[int]) -> str:
    state = f'\n_s_{op.name} = state(get("{op.name}"))\n_r_{op.name} = _s_{op.name}.fast\n'
    items = f"_i_{op.name} = KnownItems()\n" if remembered_items(op) else ""
    return f"{state}{items}\n\n{typed_function(op, differentiable)}\n"
