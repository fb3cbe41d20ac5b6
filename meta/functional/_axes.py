"""Helpers on axes."""

from __future__ import annotations

from typing import Any

import meta


def along(vector: Any, axis: int, ndim: int) -> Any:
    """A vector so that it broadcasts along one axis of a tensor of `ndim` axes."""
    shape = [1] * ndim
    shape[axis] = -1
    return meta.reshape(vector, shape)
