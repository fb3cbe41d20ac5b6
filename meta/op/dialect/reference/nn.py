"""Neural-network operators in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.backend.reference.precision import widen
from meta.op.dialect.reference import plain
from meta.op.dialect.reference.random import bernoulli

Array = Any


def dropout(x: Array, key: Array, p: float) -> tuple[Array, Array]:
    mask = bernoulli(key, x.shape, 1 - p, "bool")
    return np.where(mask, widen(x) * (0.0 if p == 1 else 1 / (1 - p)), 0), mask


plain({"dropout": dropout})
