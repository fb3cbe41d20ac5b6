"""Sums over register tiles: products with a matrix, convolutions with channels last, forward and backward.

Each is a sum `result[..., lane] += scalar * vector[lane]`, whose loops `meta.backend.tvm.schedule.cpu.tiles` orders as
the annotations of its block say. Extents of the sum are rounded up to whole tiles; a last block copies what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from meta._generated import limits
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.target import choose, choose_divisor

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

TILE: Final = "meta.tile"
"""Annotation of a sum: the size of the register tile along each axis of the result. The last axis has the lanes."""
BLOCK: Final = "meta.block"
"""Annotation of a sum: the size of a cache block along each axis of the result, 0 for axes without blocks."""
PARTS: Final = "meta.parts"
"""Annotation of a sum: whether the first axis of the result is added up by the block that reads it."""
IN_BLOCKS: Final = "meta.in_blocks"
"""Annotation of a sum: whether a long one is added in blocks, as other sums are (see schedule.summation)."""
DOTS: Final = "meta.dots"
"""Annotation of a sum: whether it adds dot products of bytes, to one register of lanes at a time (see te.dots)."""
KEPT: Final = "meta.kept"
"""Annotation of a copy that is stored, not computed where it is read: whole, STORED, or BY_PANEL."""
STORED: Final = 1
BY_PANEL: Final = 2
"""The part of the copy that a panel of lanes reads is stored when the sum of the panel begins."""
BY_TILE: Final = 3
"""The copy is the result of the tiles, which other blocks then read in another order."""


def lanes(dtype: str) -> int:
    """Elements along the last axis of a tile: two vector registers."""
    return 2 * _register(dtype)


def choose_lanes(dtype: str) -> int:
    """Elements along the last axis of the tiles of one kernel."""
    return choose("tile_lanes", lanes(dtype), [n * _register(dtype) for n in (2, 1, 4)])


def _register(dtype: str) -> int:
    """Elements of a vector register."""
    from meta.backend.tvm import target as targets

    return targets.lanes(64 if dtype == "float64" else 32)


def refuse_bytes(call: CallInfo) -> str | None:
    """Why sums of bytes do not run in register tiles: dot products have whole registers of sums."""
    x, w = call.tensors()
    if call.device.kind != "cpu" or not (x.is_static and w.is_static) or x.size == 0:
        return "it has register tiles on CPUs, for sizes that are known"
    width, register = w.shape[-2], _register("int32")
    return None if int(width) % register == 0 else f"panels have {width} columns, registers {register}"


def most_rows(registers: int = 2) -> int:
    """Rows in a tile, at most: of as many registers each. The rest hold the operands."""
    from meta.backend.tvm import target as targets

    return (28 if targets.vector_bits() == 512 else 12) // registers


def choose_tile(height: int, width: int, panel_bytes: int = 0, limit: int | None = None) -> tuple[int, int]:
    """Rows and columns of pixels in a tile: those that take the least time for the whole image.

    panel_bytes: what each tile reads of the kernel; reading it from the second-level cache takes time too.
    limit: pixels of a tile, at most."""
    limit = limit or most_rows()
    overhead = 3 if panel_bytes > limits.TILE_PANEL_BYTES else 1
    sizes = [(h, w) for w in range(1, min(width, limit) + 1) for h in range(1, min(height, limit // w) + 1)]

    def cost(size: tuple[int, int]) -> tuple[int, int]:
        rows, columns = size
        tiles = _tiles(height, rows) * _tiles(width, columns)
        return tiles * (max(rows * columns, limits.TILE_LEAST_STEPS) + overhead), rows

    best = sorted(sizes, key=cost)
    return choose("tile_pixels", best[0], best[:_TILES])


_TILES: Final = 7
"""Sizes of tiles that tuning may choose among, by the time that they are expected to take."""


def _tiles(extent: int, size: int) -> int:
    return -(-extent // size)


def rounded_up(extent: int, size: int) -> int:
    return _tiles(extent, size) * size


def tiled_sum(
    shape: Sequence[int], tile: Sequence[int], element: Callable[..., Any], block: Sequence[int] = (), *,
    in_blocks: bool = False, is_reordered: bool = False, dots: bool = False,
) -> Any:  # fmt: skip
    """A tensor of `shape` with the sums `element(*indices)`, for indices of whole tiles.

    block: the cache blocks, in elements; each a multiple of the tile that divides the rounded extent.
    in_blocks: whether long sums are added in blocks, for sums over one axis.
    is_reordered: whether what reads the tensor has its elements in another order.
    dots: whether the sums are of dot products of bytes."""
    total = _total(shape, tile, element, block, parts=False, in_blocks=in_blocks, dots=dots)
    return te.compute(list(shape), lambda *i: total(*i), "result", attrs={KEPT: BY_TILE} if is_reordered else None)


def tiled_sum_of_parts(parts: int, shape: Sequence[int], tile: Sequence[int], element: Callable[..., Any]) -> Any:
    """A tensor of `shape` with the sums of `element(part, *indices)` over the parts, one part after the other."""
    total = _total((parts, *shape), (1, *tile), element, (), parts=True)
    part = te.reduce_axis((0, parts), "part")
    return te.compute(list(shape), lambda *i: te.sum(total(part, *i), part), "result")


def _total(
    shape: Sequence[int], tile: Sequence[int], element: Callable[..., Any], block: Sequence[int], *, parts: bool,
    in_blocks: bool = False, dots: bool = False,
) -> Any:  # fmt: skip
    whole = [rounded_up(extent, size) for extent, size in zip(shape, tile, strict=True)]
    attrs = {TILE: list(tile), BLOCK: list(block) or [0] * len(tile)}
    attrs |= {PARTS: int(parts), IN_BLOCKS: int(in_blocks), DOTS: int(dots)}
    return te.compute(whole, element, "tiled_sum", attrs=attrs)


def stored_copy(shape: Sequence[int], element: Callable[..., Any], name: str, *, by_panel: bool = False) -> Any:
    """A copy that is stored before the sums read it; `by_panel`, for one panel of lanes, its first axis, at a time."""
    return te.compute(list(shape), element, name, attrs={KEPT: BY_PANEL if by_panel else STORED})


def padded_images(x: Tensor, befores: Sequence[int], sizes: Sequence[int], channels: int, fill: int = 0) -> Any:
    """x, (batch, *spatial, channels), with zeros, or `fill`, around its spatial axes: `befores` before them and `sizes`
    in all; and zeros after its channels, up to `channels`."""
    batch, *spatial, own_channels = (int(d) for d in x.shape)
    if not any(befores) and all(size <= d for size, d in zip(sizes, spatial, strict=True)) and channels == own_channels:
        return x

    def element(n: Expr, *i: Expr) -> Any:
        *place, c = i
        position = [a - b for a, b in zip(place, befores, strict=True)]
        inside = [check for a, d in zip(position, spatial, strict=True) for check in (a >= 0, a < d)]
        is_channel = [c < own_channels] if channels > own_channels else []
        if not fill:
            return tirx.if_then_else(tirx.all(*inside, *is_channel), x(n, *position, c), tirx.const(0, x.dtype))
        value = tirx.if_then_else(tirx.all(*inside), x(n, *position, c), tirx.const(fill, x.dtype))
        return tirx.if_then_else(tirx.all(*is_channel), value, tirx.const(0, x.dtype)) if is_channel else value

    return stored_copy((batch, *sizes, channels), element, "padded")


def cache_block(batch: int, rows: int, tile_rows: int, image_bytes: int) -> tuple[int, int]:
    """Images and rows of pixels whose operand fits in a part of the cache: whole images, or rows of one."""
    tiles, whole = _tiles(rows, tile_rows), image_bytes <= limits.CACHE_BLOCK_BYTES
    extent = batch if whole else tiles
    most = max(limits.CACHE_BLOCK_BYTES * (1 if whole else tiles) // max(image_bytes, 1), 1)
    count = next(n for n in range(max(min(extent, most), 1), 0, -1) if extent % n == 0)
    if not choose("block_of_images", whole, (True, False)):
        return 1, tile_rows * choose_divisor("block_rows", tiles if whole else count, tiles)
    return choose_divisor("block_images", count if whole else 1, batch), rounded_up(rows, tile_rows)
