"""Accumulation in a wider type: half precisions are computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.dtype import HALVES


def widen(x: Any) -> Any:
    """The array in the dtype it is computed in; None stays None."""
    return x.astype(np.float32) if x is not None and x.dtype.name in HALVES else x
