"""Convolutions of two spatial axes with channels last, in register tiles of pixels and channels.

x is (batch, height, width, channels), kernels are (out channels, height, width, channels) or packed: (panels, height,
width, channels, lanes), where a panel has the out channels of one tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from meta._generated import limits
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.target import choose
from meta.backend.tvm.te.dots import dot
from meta.backend.tvm.te.elementwise import narrow, widen
from meta.backend.tvm.te.tiles import (
    cache_block,
    choose_lanes,
    choose_tile,
    lanes,
    most_rows,
    padded_images,
    rounded_up,
    stored_copy,
    tiled_sum,
    tiled_sum_of_parts,
)
from meta.records import record

_Ints = tuple[int, ...]
_Pads = tuple[tuple[int, int], ...]


def _sizes(x: Tensor) -> list[int]:
    return [int(d) for d in x.shape]


def _reach(kernel: int, spread: int) -> int:
    """The number of elements that a dilated kernel spans."""
    return (kernel - 1) * spread + 1


def _counts(sizes: Sequence[int], pads: _Pads, window: Sequence[int], spreads: _Ints, steps: _Ints) -> list[int]:
    """The number of windows along each axis."""
    of_axes = zip(sizes, pads, window, spreads, steps, strict=True)
    return [(d + sum(p) - _reach(k, s)) // t + 1 for d, p, k, s, t in of_axes]


def _padded(
    x: Tensor, counts: Sequence[int], tile: Sequence[int], steps: _Ints, pads: _Pads, window: Sequence[int],
    spreads: _Ints, width: int = 1, fill: int = 0,
) -> Any:  # fmt: skip
    """x with what whole tiles of windows, and of `width` channels, read."""
    of_axes = zip(counts, tile, steps, window, spreads, strict=True)
    padded_sizes = [(rounded_up(n, size) - 1) * t + _reach(k, s) for n, size, t, k, s in of_axes]
    channels = rounded_up(_sizes(x)[-1], width)
    return padded_images(x, [before for before, _ in pads], padded_sizes, channels, fill)


def correlate(
    x: Tensor, packed: Tensor, outs: int, steps: _Ints, pads: _Pads, spreads: _Ints, *, is_reordered: bool = False
) -> Any:
    """Correlate x with packed kernels; only the first `outs` channels count. is_reordered: see `tiled_sum`."""
    _, *window, ins, width = _sizes(packed)
    batch, *sizes, _ = _sizes(x)
    counts = _counts(sizes, pads, window, spreads, steps)
    tile = choose_tile(counts[0], counts[1], prod(window) * ins * width * 4, _rows_of(packed))
    data = _padded(x, counts, tile, steps, pads, window, spreads)
    taps, c = [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(window)], te.reduce_axis((0, ins), "c")

    def element(n: Expr, *i: Expr) -> Any:
        *place, o = i
        position = [a * t + r * s for a, t, r, s in zip(place, steps, taps, spreads, strict=True)]
        return te.sum(widen(data(n, *position, c)) * widen(packed(o // width, *taps, c, o % width)), [*taps, c])

    row_bytes = sizes[1] * ins * steps[0] * 4
    images, rows = cache_block(batch, counts[0], tile[0], counts[0] * row_bytes)
    y = tiled_sum((batch, *counts, outs), (1, *tile, width), element, (images, rows, 0, 0), in_blocks=True,
                  is_reordered=is_reordered)  # fmt: skip
    return narrow(y, str(x.dtype))


def correlate_bytes(x: Tensor, packed: Tensor, outs: int, fill: int, steps: _Ints, pads: _Pads, spreads: _Ints) -> Any:
    """Correlate bytes with packed kernels, (panels, *window, quads of channels, lanes, 4), in 32 bits; x has `fill`
    around it."""
    _, *window, quads, width, _ = _sizes(packed)
    batch, *sizes, _ = _sizes(x)
    counts = _counts(sizes, pads, window, spreads, steps)
    rows = most_rows(max(2 * width // lanes("int32"), 1))
    tile = choose_tile(counts[0], counts[1], prod(window) * quads * 4 * width, rows)
    data = _padded(x, counts, tile, steps, pads, window, spreads, 4, fill)
    taps, c = [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(window)], te.reduce_axis((0, quads), "c")

    def element(n: Expr, *i: Expr) -> Any:
        *place, o = i
        position = [a * t + r * s for a, t, r, s in zip(place, steps, taps, spreads, strict=True)]
        left = [data(n, *position, c * 4 + byte) for byte in range(4)]
        right = [packed(o // width, *taps, c, o % width, byte) for byte in range(4)]
        return te.sum(dot(left, right), [*taps, c])

    row_bytes = sizes[1] * quads * 4 * steps[0]
    images, lines = cache_block(batch, counts[0], tile[0], counts[0] * row_bytes)
    return tiled_sum((batch, *counts, outs), (1, *tile, width), element, (images, lines, 0, 0), dots=True)


def _rows_of(packed: Tensor) -> int:
    """Rows of a tile, at most, with the lanes of a packed kernel."""
    return most_rows(max(2 * _sizes(packed)[-1] // lanes(str(packed.dtype)), 1))


def convolve_channels(x: Tensor, w: Tensor, steps: _Ints, pads: _Pads, spreads: _Ints) -> Any:
    """The correlation of each channel of x with its own kernel, of w (channels, *window, 1)."""
    batch, *sizes, channels = _sizes(x)
    _, *window, _ = _sizes(w)
    counts = _counts(sizes, pads, window, spreads, steps)
    packed = packed_kernel(channels, window, 1, str(x.dtype), w)
    tile, width = (1, choose_tile(1, counts[1], limit=_rows_of(packed))[1]), _sizes(packed)[-1]
    data = _padded(x, counts, tile, steps, pads, window, spreads, width)
    taps = [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(window)]
    within = te.reduce_axis((0, 1), "c")

    def element(n: Expr, *i: Expr) -> Any:
        *place, o = i
        position = [a * t + r * s for a, t, r, s in zip(place, steps, taps, spreads, strict=True)]
        return te.sum(data(n, *position, o) * packed(o // width, *taps, within, o % width), [*taps, within])

    images, rows = cache_block(batch, counts[0], 1, counts[0] * sizes[1] * channels * steps[0] * 4)
    return tiled_sum((batch, *counts, channels), (1, *tile, width), element, (images, rows, 0, 0))


def packed_kernel(outs: int, window: Sequence[int], ins: int, dtype: str, position: Callable[..., Any]) -> Any:
    """Panels of a kernel, in which `at(o, *place, c)` is an element; zeros fill the last one."""
    width = choose_lanes(dtype)
    panels = -(-outs // width)

    def element(p: Expr, *i: Expr) -> Any:
        *place, c, lane = i
        o = p * width + lane
        value = position(o, *place, c)
        return value if outs % width == 0 else tirx.if_then_else(o < outs, value, tirx.const(0, dtype))

    return stored_copy((panels, *window, ins, width), element, "packed")


def convolve(x: Tensor, w: Tensor, steps: _Ints, pads: _Pads, spreads: _Ints) -> Any:
    """Cross-correlation of x with w."""
    outs, *window, ins = _sizes(w)
    return correlate(x, packed_kernel(outs, window, ins, str(x.dtype), w), outs, steps, pads, spreads)


def convolve_dx(w: Tensor, dy: Tensor, shape: _Ints, steps: _Ints, pads: _Pads, spreads: _Ints) -> Any:
    """The gradient with respect to x of `shape`: dy with the kernel turned around. Where windows are some steps apart,
    each position within a step has its own kernel, with the elements of the dilated one that are steps apart."""
    outs, *window, ins = _sizes(w)
    axes = [_GradientAxis(*axis) for axis in zip(window, steps, (p for p, _ in pads), spreads, strict=True)]
    size = prod(axis.kernels for axis in axes) * ins

    def turned(channel: Expr, *i: Expr) -> Any:
        *place, o = i
        number, c = (channel // ins, channel % ins) if size > ins else (0, channel)
        taps, inside = list[Any](), list[Any]()
        for axis, j in reversed(list(zip(axes, place, strict=True))):
            tap, checks = axis.tap(number % axis.kernels, j)
            number, taps, inside = number // axis.kernels, [tap, *taps], [*inside, *checks]
        value = w(o, *taps, c)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, w.dtype)) if inside else value

    packed = packed_kernel(size, [axis.taps for axis in axes], outs, str(dy.dtype), turned)
    around = tuple(axis.pads(d, n) for axis, d, n in zip(axes, shape[1:3], _sizes(dy)[1:3], strict=True))
    apart = tuple(axis.distance for axis in axes)
    if set(steps) == {1}:
        return correlate(dy, packed, ins, (1, 1), around, apart)
    y = correlate(dy, packed, size, (1, 1), around, apart, is_reordered=True)

    def element(n: Expr, *i: Expr) -> Any:
        *place, c = i
        number, sources, inside = 0, list[Any](), list[Any]()
        for axis, h in zip(axes, place, strict=True):
            source, within = axis.source(h)
            number, sources = number * axis.kernels + within, [*sources, source]
            inside += [within < axis.kernels] if axis.kernels < axis.step else []
        value = y(n, *sources, number * ins + c)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, w.dtype)) if inside else value

    return te.compute(shape, element, "dx")


@record
class _GradientAxis:
    """A spatial axis of a gradient. Windows of `window` elements, `spread` apart, start every `step` elements, from
    `before` elements before the first one."""

    window: int
    step: int
    before: int
    spread: int

    @property
    def reach(self) -> int:
        return _reach(self.window, self.spread)

    @property
    def kernels(self) -> int:
        """Positions within a step that windows reach, each with its own kernel."""
        return min(self.step, self.reach)

    @property
    def taps(self) -> int:
        """Elements of each kernel; they are neighbours in dy where the step is more than 1."""
        return self.window if self.step == 1 else -(-self.reach // self.step)

    @property
    def distance(self) -> int:
        """Between elements of dy that a kernel reads."""
        return self.spread if self.step == 1 else 1

    def tap(self, number: Any, j: Any) -> tuple[Any, list[Any]]:
        """The element of the whole kernel that is element j of a kernel, and when there is one."""
        if self.step == 1:
            return self.taps - 1 - j, []
        place = number + (self.taps - 1 - j) * self.step
        is_in_reach = [place < self.reach] if self.reach % self.step else []
        is_element = [place % self.spread == 0] if self.spread > 1 else []
        return place // self.spread, [*is_in_reach, *is_element]

    def pads(self, size: int, count: int) -> tuple[int, int]:
        """The padding of dy, of `count` elements, for a result of `size`."""
        last = (size - 1 + self.before) // self.step
        return (self.taps - 1) * self.distance - self.before // self.step, last + 1 - count

    def source(self, position: Any) -> tuple[Any, Any]:
        """The step that a position is in, from the first, and the position within it."""
        place = position + self.before
        return place // self.step - self.before // self.step, place % self.step


def convolve_dw(x: Tensor, dy: Tensor, shape: _Ints, steps: _Ints, pads: _Pads, spreads: _Ints) -> Any:
    """The gradient with respect to a kernel of `shape`: lanes are channels of x, rows of a tile are channels of dy."""
    outs, *window, _ = shape
    batch, *counts, _ = _sizes(dy)
    width = choose_lanes(str(dy.dtype))
    rows = [n for n in (8, 7, 6, 5, 4, 2, 1, 12, 14, 16, 24) if outs % n == 0]
    rows = choose("tile_rows", max(n for n in rows if n <= 8), rows)
    data = _padded(x, counts, (1, 1), steps, pads, window, spreads, width)
    images, lines = _part(batch, *counts)
    parts = batch // images * (counts[0] // lines)
    n, y, z = (te.reduce_axis((0, d), name) for d, name in zip((images, lines, counts[1]), "nyz", strict=True))

    def element(part: Any, o: Expr, *i: Expr) -> Any:
        *taps, c = i
        if lines == counts[0]:
            image, line = part * images + n, y
        else:
            image, line = part // (counts[0] // lines), part % (counts[0] // lines) * lines + y
        position = [a * t + r * s for a, t, r, s in zip((line, z), steps, taps, spreads, strict=True)]
        return te.sum(dy(image, line, z, o) * data(image, *position, c), [n, y, z])

    tile = (rows, *(1 for _ in window), width)
    if parts == 1:
        return tiled_sum(shape, tile, lambda *i: element(0, *i))
    return tiled_sum_of_parts(parts, shape, tile, element)


def _part(batch: int, height: int, width: int) -> tuple[int, int]:
    """Images and rows of pixels of a part of a sum over pixels: few rounding errors, and operands in the cache."""
    if height * width <= limits.PIXELS_OF_A_PART:
        most = max(min(batch, limits.PIXELS_OF_A_PART // max(height * width, 1)), 1)
        images = next(n for n in range(most, 0, -1) if batch % n == 0)
        return choose("part_images", images, [n for n in range(1, images + 1) if batch % n == 0]), height
    most = max(min(height, limits.PIXELS_OF_A_PART // width), 1)
    lines = next(n for n in range(most, 0, -1) if height % n == 0)
    return 1, choose("part_lines", lines, [n for n in range(1, lines + 1) if height % n == 0])
