"""Relax programs of TVM: `from_relax`, `load` and `examine` read them, `to_relax` writes them."""

from __future__ import annotations

from meta.frontend.examination import Examination, OperatorUse
from meta.frontend.relax.api import RelaxModel, examine, from_relax, load
from meta.frontend.relax.export import to_relax
from meta.frontend.relax.sizes import RelaxError, UnsupportedError

__all__ = [
    "Examination", "OperatorUse", "RelaxError", "RelaxModel", "UnsupportedError", "examine", "from_relax", "load",
    "to_relax",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
