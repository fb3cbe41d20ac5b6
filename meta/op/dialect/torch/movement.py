"""Operators that repeat, reorder or mask elements by ATen, for complex numbers."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.torch import complex_only


def flip(x: Any, axis: tuple[int, ...] | None) -> Any:
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


complex_only(
    {
        "flip": lambda torch: flip,
        "repeat": "repeat_interleave",
        "roll": lambda torch: lambda x, shift, axis: x.roll(shift, axis) if axis else x,
        "tile": "tile",
        "tril": "tril",
        "triu": "triu",
    }
)
