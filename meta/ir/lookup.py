"""How the reader of IR text finds operators: the operator layer, above this one, installs its lookup here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meta.ir.expr import OpLike

OpLookup = Callable[[str], "OpLike"]
"""The operator of a name; raises RegistryError when there is none."""

_installed: list[OpLookup] = []


def set_op_lookup(lookup: OpLookup) -> None:
    """Install the lookup that `parse` uses when it is given none."""
    _installed[:] = [lookup]


def find_op(name: str) -> OpLike:
    """The operator called `name` by the installed lookup, by default the registry's; raises RegistryError
    without such a name."""
    if not _installed:
        import meta

        meta.op.registry  # noqa: B018 - the registry installs its lookup when it is imported
    return _installed[0](name)
