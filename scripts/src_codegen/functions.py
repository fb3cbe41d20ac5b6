"""meta/_generated/operators/<family>.py: the typed public functions, which are also the eager fast path; and
meta/_generated/functions.py, which has the functions of all families and imports a family at the first use of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meta.op.codegen.functions import remembered_items, typed_function
from meta.op.registry import Op
from scripts.src_codegen.layout import by_family, header

_IMPORTS = """
# A call looks up a runner by the types of its arguments; everything else happens once, in meta.eager.call.
# ruff: noqa: A001, A002, E501
# A number among the operands has no type to look up: the AttributeError sends the call the general way.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportInvalidTypeVarUse=false, reportUnusedImport=false

from __future__ import annotations

from collections.abc import Sequence
from marshal import dumps
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from meta._generated.methods import T
from meta.eager.tape import record
from meta.eager.call import explained_sizes, invoke, refuse, state
from meta.eager.known_items import KnownItems
from meta.op.registry import get
from meta.modes import modes, scopes
from meta.schema.annotations import bound_by_schema

if TYPE_CHECKING:
    from meta.device import Device
    from meta.dim import Dim
    from meta.dtype import Number
    from meta.eager.ndarray import NDArray

    DeviceLike = Device | str
    DTypeLike = Any
"""


_ALL = """
# ruff: noqa: F403

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meta._generated.table import ALIASES, FAMILIES

if TYPE_CHECKING:
{imports}else:

    def __getattr__(name: str) -> Any:
        family = FAMILIES.get(ALIASES.get(name, name))
        if family is None:
            raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
        value = globals()[name] = getattr(import_module(f"meta._generated.operators.{{family}}"), name)
        return value
"""


def render(ops: Sequence[Op]) -> str:
    """The module with the functions of all families."""
    imports = "".join(f"    from meta._generated.operators.{family} import *\n" for family in by_family(ops))
    return header("The public operators, imported by family at the first use of one.") + _ALL.format(imports=imports)


def render_families(ops: Sequence[Op]) -> Mapping[str, str]:
    """The modules of the families, by path."""
    return {
        f"meta/_generated/operators/{family}.py": _family(family, group) for family, group in by_family(ops).items()
    }


def _family(family: str, ops: Sequence[Op]) -> str:
    from scripts.src_codegen.gradients import differentiable_positions

    parts = [header(f"The public operators of the family {family}, eager and traced."), _IMPORTS]
    for op in ops:
        parts.append(_function(op, differentiable_positions(op)))
        parts.extend(f"\n{alias} = {op.name}\n" for alias in op.aliases)
    return "".join(parts)


def _function(op: Op, differentiable: Sequence[int]) -> str:
    state = f'\n_s_{op.name} = state(get("{op.name}"))\n_r_{op.name} = _s_{op.name}.fast\n'
    items = f"_i_{op.name} = KnownItems()\n" if remembered_items(op) else ""
    return f"{state}{items}\n\n{typed_function(op, differentiable)}\n"
