"""Eigenvalues of general matrices in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op import matrices
from meta.op.dialect.reference import plain


@matrices.converging("eig")
def eig(x: Any) -> tuple[Any, ...]:
    return tuple(np.linalg.eig(x))


plain({"eig": eig})
