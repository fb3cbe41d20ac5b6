"""Reductions of floating tensors. `max` and `min`, whose NaN Relax drops, are not here."""

from __future__ import annotations

from typing import Any

from meta.frontend.relax.export_ops._table import RelaxSite, rows
from meta.frontend.rows import Function


def _reduction(name: str) -> Function:
    def convert(call: RelaxSite, x: Any, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
        if not call.is_wide or call.types[0].ndim == 0 or axis == ():
            return None
        return getattr(call.op, name)(x, None if axis is None else list(axis), keepdims)

    return convert


rows({name: _reduction(name) for name in ("mean", "prod", "sum")})
