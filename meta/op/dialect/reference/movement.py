"""Operators that repeat, reorder, pad or mask elements, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.op.dialect.reference import DIALECT


def pad(x: Any, pad_width: tuple[int, ...], pad_value: float, mode: Any) -> Any:
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    if mode in ("constant", "wrap"):
        x = x[
            tuple(slice(max(-before, 0), d + min(after, 0)) for (before, after), d in zip(pairs, x.shape, strict=True))
        ]
        pairs = [(max(before, 0), max(after, 0)) for before, after in pairs]
        options: Any = {"constant_values": np.asarray(pad_value).astype(x.dtype)} if mode == "constant" else {}
        return np.pad(x, pairs, mode, **options) if pairs else x
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            size = x.shape[axis]
            whole = np.pad(np.arange(size), (max(before, 0), max(after, 0)), mode)
            x = np.take(x, whole[max(-before, 0) :][: size + before + after], axis)
    return x


DIALECT.implement("flip", lambda x, axis: np.flip(x, axis) if x.ndim else x)
DIALECT.implement("pad", pad)
DIALECT.implement("tile", np.tile)
DIALECT.implement("tril", np.tril)
DIALECT.implement("triu", np.triu)
