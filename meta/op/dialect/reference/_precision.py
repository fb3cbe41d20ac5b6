"""Accumulation in a wider type: half precisions are computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.dtype import HALVES


def widen(x: Any) -> Any:
    """The array in the dtype it is computed in; None stays None."""
    if x is None or x.dtype.name not in HALVES:
        return x
    return x.astype(np.float32)
