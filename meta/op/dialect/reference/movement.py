"""Operators that repeat, reorder, pad or mask elements, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference import DIALECT


def pad(x: Any, pad_width: tuple[int, ...], pad_value: float, mode: Any) -> Any:
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    if mode != "constant":
        return np.pad(x, pairs, mode) if pairs else x
    return np.pad(x, pairs, constant_values=np.asarray(pad_value).astype(x.dtype)) if pairs else x


DIALECT.implement("flip", np.flip)
DIALECT.implement("pad", pad)
DIALECT.implement("repeat", np.repeat)
DIALECT.implement("roll", np.roll)
DIALECT.implement("tile", np.tile)
DIALECT.implement("tril", np.tril)
DIALECT.implement("triu", np.triu)
