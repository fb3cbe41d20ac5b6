"""Sliding windows along spatial axes: kernel, strides, dilations and pads of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim
from meta.errors import NotSupportedError, TypeInferenceError


@dataclass(frozen=True, slots=True)
class Window:
    """kernel, strides, dilations: one number an axis.  pads: of the beginning and the end of each axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def begins(self) -> tuple[int, ...]:
        return tuple(a for a, _ in self.pads)

    @property
    def padding(self) -> tuple[int, ...]:
        """All beginnings, then all ends, as meta's operators take them."""
        return (*self.begins, *(b for _, b in self.pads))

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements from the first to the last tap along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def window_of(
    op: str, spatial: Sequence[Dim], kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str
) -> Window:
    """The window of a node over an input of these spatial sizes.

    auto_pad: NOTSET (pads count), VALID (none), SAME_UPPER or SAME_LOWER (sizes divided by the strides, rounded up; of
    an odd number of pads the end or the beginning has one more)."""
    rank = len(spatial)
    kernel, strides = tuple(map(int, kernel)), tuple(map(int, strides or (1,) * rank))
    dilations = tuple(map(int, dilations or (1,) * rank))
    if {len(kernel), len(strides), len(dilations)} != {rank}:
        raise TypeInferenceError(op, f"kernel {kernel}, strides {strides} and dilations {dilations} for {rank} axes",
                                 "one of each an axis")  # fmt: skip
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        window = Window(kernel, strides, dilations, ((0, 0),) * rank)
        return Window(kernel, strides, dilations, _same(op, window, spatial, auto_pad))
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise TypeInferenceError(op, f"auto_pad is {auto_pad!r}", "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    padding = tuple(map(int, pads)) if pads and auto_pad != "VALID" else (0,) * (2 * rank)
    if len(padding) != 2 * rank:
        raise TypeInferenceError(op, f"pads {padding} for {rank} axes", f"{2 * rank} numbers")
    return Window(kernel, strides, dilations, tuple(zip(padding[:rank], padding[rank:], strict=True)))


def _same(op: str, window: Window, spatial: Sequence[Dim], auto_pad: str) -> tuple[tuple[int, int], ...]:
    pads: list[tuple[Any, Any]] = []
    for n, stride, extent in zip(spatial, window.strides, window.extents, strict=True):
        if not isinstance(n, int) and stride != 1:
            raise NotSupportedError(op, f"auto_pad {auto_pad} of an axis of size {n} with stride {stride}",
                                    "a known size, or stride 1")  # fmt: skip
        total = extent - 1 if stride == 1 else max((-(-n // stride) - 1) * stride + extent - n, 0)
        small = total // 2
        pads.append((small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small))
    return tuple(pads)


def padded(x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Any:
    """x with elements added at both ends of its spatial axes, which come after batch and channels."""
    if not any(map(any, pads)):
        return x
    if any(p < 0 for pair in pads for p in pair):
        begin = (0, 0, *(max(0, -a) for a, _ in pads))
        end = (*x.shape[:2], *(n - max(0, -b) for n, (_, b) in zip(x.shape[2:], pads, strict=True)))
        x = meta.strided_slice(x, begin, end)
    return meta.pad(x, ((0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in pads)), value)
