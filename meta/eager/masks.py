"""Boolean masks among indices, as the positions of their true elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.dim import Dim
from meta.errors import PositionError
from meta.op import rules
from meta.records import record


@record
class MaskAxis:
    """The positions of a mask's true elements along one of its axes, whose size was `size`."""

    positions: Any
    size: int


def is_mask(item: object) -> bool:
    """Whether a part of an index is a NumPy array or scalar of bools."""
    return getattr(getattr(item, "dtype", None), "kind", "") == "b"


def is_scalar_mask(index: object) -> bool:
    """Whether an index is a mask without axes: it adds an axis in front, of size 1 if it is true and 0 if not."""
    return getattr(index, "shape", None) == () and getattr(index, "dtype", None) == "bool"


def mask_positions(mask: Any) -> list[Any]:
    """One MaskAxis for each axis of a mask."""
    if mask.ndim == 0:
        raise PositionError("index", "a 0-d mask in a tuple", "0-d masks by themselves, as x[mask]")
    return [MaskAxis(p, size) for p, size in zip(mask.nonzero(), mask.shape, strict=True)]


def check_masks(shape: Sequence[Dim], items: Sequence[Any]) -> None:
    """Raise PositionError unless masks have the sizes of the axes that they pick from, or size 0, which picks none (the
    array API standard's rule)."""
    sizes = iter(shape)
    for item in items:
        size = None if item is None else next(sizes)
        if isinstance(item, MaskAxis) and item.size not in (size, 0):
            raise PositionError(
                "index",
                f"a mask of size {item.size} for an axis of size {size} of shape {rules.show(tuple(shape))}",
                "masks of the sizes of the axes that they pick from",
            )
