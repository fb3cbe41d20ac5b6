"""Sequences of numbers, and tensors with unspecified values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.device import CPU, Device
from meta.functional._checks import as_dtype, is_tensor, require
from meta.op import rules

__all__ = ["empty", "empty_like", "logspace"]


def logspace(
    start: Any, stop: Any, num: int, base: float = 10.0, dtype: str = "float32", device: Device | str = CPU
) -> Any:
    """`num` powers of `base`, with exponents at equal distances from `start` to `stop`, both included.

    start, stop: numbers or 0-d tensors. Computed in float64."""
    exponents = spaced("logspace", start, stop, num, device)
    return as_dtype(meta.power(meta.full_like(exponents, base), exponents), dtype)


def spaced(name: str, start: Any, stop: Any, num: int, device: Device | str = CPU) -> Any:
    """`linspace` in float64 between numbers or 0-d tensors, on the device of the tensors if there are any."""
    ends: list[Any] = [start, stop]
    tensors = [end for end in ends if is_tensor(end)]
    for end in tensors:
        require(name, end.ndim == 0, f"an end has shape {rules.show(end.shape)}", "numbers and 0-d tensors")
    require(name, num >= 0, f"num is {num}", "0 or more")
    if not tensors:
        return meta.linspace(start, stop, num, "float64", device)
    first, last = (as_dtype(end, "float64") if is_tensor(end) else end for end in ends)
    step = (last - first) / max(num - 1, 1)
    place = meta.arange(0, num, 1, "float64", tensors[0].device)
    # Counted from the nearer end: both ends are exact.
    return meta.where(meta.less(place, (num + 1) // 2), first + step * place, last - step * (num - 1 - place))


def empty(shape: int | Sequence[int], dtype: str = "float32", device: Device | str = CPU) -> Any:
    """A tensor with unspecified values: zeros here, so that programs repeat."""
    return meta.zeros(shape, dtype, device)


def empty_like(x: Any, dtype: str | None = None) -> Any:
    """A tensor of the shape of another, with values as those of `empty`."""
    return meta.zeros_like(x, dtype)
