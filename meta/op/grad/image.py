"""Gradients of operators on images."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType


def resize_dx_dy(dy: TensorType, method: str, coordinates: str, rounding: str, cubic_alpha: float, dz: Any) -> Any:
    """resize_dx is linear in dy; its transpose is the forward resize."""
    resize = (meta.resize1d, meta.resize2d, meta.resize3d)[dy.ndim - 3]
    return resize(dz, dy.shape[2:], method, coordinates, rounding, cubic_alpha)  # type: ignore[arg-type]
