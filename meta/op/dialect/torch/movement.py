"""Operators that repeat, reorder or mask elements by ATen, for complex numbers."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.torch import complex_only


def flip(x: Any, axis: tuple[int, ...] | None) -> Any:
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def pad(torch: Any) -> Any:
    def run(x: Any, pad_width: tuple[int, ...], pad_value: float, mode: str) -> Any:
        if mode == "constant":
            widths = [w for pair in zip(pad_width[-2::-2], pad_width[::-2], strict=True) for w in pair]
            return torch.constant_pad_nd(x, widths, pad_value)
        for axis, (before, after) in enumerate(zip(pad_width[::2], pad_width[1::2], strict=True)):
            size = x.shape[axis]
            # Negative widths remove elements: "wrap" repeats what is left, the other modes copy from the whole axis.
            first, last = (max(-before, 0), size - max(-after, 0)) if mode == "wrap" else (0, size)
            positions = torch.arange(-before, size + after, device=x.device) - first
            x = x.index_select(axis, first + _inside(positions, last - first, mode))
        return x

    return run


def _inside(positions: Any, size: int, mode: str) -> Any:
    """Positions, with those outside of an axis replaced by the positions of the elements that are repeated there."""
    if mode == "edge":
        return positions.clamp(0, size - 1)
    if mode == "wrap":
        return positions.remainder(max(size, 1))
    spare = 1 if mode == "symmetric" else 0  # whether the element at the end is repeated
    left = positions.where(positions >= 0, -positions - spare)
    return left.where(left < size, 2 * (size - 1) - left + spare)


complex_only(
    {
        "flip": lambda torch: flip,
        "pad": pad,
        "repeat": "repeat_interleave",
        "roll": lambda torch: lambda x, shift, axis: x.roll(shift, axis) if axis else x,
        "tile": "tile",
        "tril": "tril",
        "triu": "triu",
    }
)
