"""Gradients of the backward operators of max pooling."""

from __future__ import annotations

import meta
from meta._generated.methods import Tensor


def max_pool_dx_dy(indices: Tensor, dz: Tensor) -> Tensor:
    """The elements of dz at the indices; 0 for windows without elements, whose index is -1."""
    lead = indices.shape[:2]
    places = meta.reshape(indices, (*lead, -1))
    gathered = meta.gather(meta.reshape(dz, (*lead, -1)), 2, meta.maximum(places, 0))
    return meta.reshape(meta.where(places >= 0, gathered, 0), indices.shape)
