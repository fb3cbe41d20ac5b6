"""Relax programs of TVM: `to_relax` writes them."""

from __future__ import annotations

from meta.frontend.relax.export import to_relax

__all__ = ["to_relax"]


def __dir__() -> list[str]:
    return sorted(__all__)
