"""Pooling of windows of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.op import windows
from meta.op.decomposition import decompose

_MAX_POOL = {1: meta.max_pool1d_with_indices, 2: meta.max_pool2d_with_indices, 3: meta.max_pool3d_with_indices}


def _adaptive_with_indices(rank: int) -> Callable[..., Any]:
    def composed(x: Any, size: tuple[int, ...]) -> Any:
        """Windows of one size, where the sizes divide."""
        spatial = x.shape[2:]
        sizes = windows.per_axis("size", size, rank)
        if any(not isinstance(d, int) or d % s for d, s in zip(spatial, sizes, strict=True)):
            return None
        kernel = tuple(d // s for d, s in zip(spatial, sizes, strict=True))
        return _MAX_POOL[rank](x, kernel, kernel)

    return composed


for _rank in (1, 2, 3):
    decompose({f"adaptive_max_pool{_rank}d_with_indices": _adaptive_with_indices(_rank)})
