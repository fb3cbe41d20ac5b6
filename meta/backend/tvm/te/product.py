"""Products with a matrix in register tiles of rows and columns.

The matrix is packed into panels of as many columns as the lanes of a tile, so that a step of the sum reads adjacent
elements. The elements of the other operand are read one by one, in rows or in columns, where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from meta._generated import limits
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.target import choose, choose_divisor
from meta.backend.tvm.te.dots import dot
from meta.backend.tvm.te.tiles import choose_lanes, lanes, most_rows, rounded_up, stored_copy, tiled_sum


def product(x: Tensor, w: Tensor, transpose_x: bool, transpose_w: bool, shape: Sequence[int]) -> Any:
    """The product, of `shape` (..., rows, columns), of x (..., rows, terms) with w (terms, columns), both static; the
    last two axes of either may be exchanged."""
    *leading, columns = shape
    terms = int(w.shape[1 if transpose_w else 0])
    width = choose_lanes(str(x.dtype))
    tile = choose_rows(leading, most_rows(2 * width // lanes(str(x.dtype))))
    rows = _padded_rows(x, transpose_x, [rounded_up(n, size) for n, size in zip(leading, tile, strict=True)])
    panels = _panels(w, transpose_w, columns, terms, width, prod(leading))
    k = te.reduce_axis((0, terms), "k")

    def element(*i: Expr) -> Any:
        *batch, row, column = i
        scalar = rows(*batch, *((k, row) if transpose_x else (row, k)))
        return te.sum(scalar * panels(column // width, k, column % width), k)

    return tiled_sum(shape, (*tile, width), element, (*block_rows(leading, tile), 0), in_blocks=True)


def product_of_bytes(x: Tensor, packed: Tensor, columns: int) -> Any:
    """The product of bytes (..., rows, terms) with packed ones, (panels, quads of terms, lanes, 4), in 32 bits."""
    _, quads, width, _ = (int(d) for d in packed.shape)
    shape = [*(int(d) for d in x.shape[:-1]), columns]
    tile = choose_rows(shape[:-1], most_rows(max(2 * width // lanes("int32"), 1)))
    whole = [rounded_up(n, size) for n, size in zip(shape, tile, strict=False)]
    rows = _padded_rows(x, False, whole, 4 * quads)
    quad = te.reduce_axis((0, quads), "quad")

    def element(*i: Expr) -> Any:
        *row, column = i
        left = [rows(*row, quad * 4 + byte) for byte in range(4)]
        right = [packed(column // width, quad, column % width, byte) for byte in range(4)]
        return te.sum(dot(left, right), quad)

    return tiled_sum(shape, (*tile, width), element, (*block_rows(shape[:-1], tile), 0), dots=True)


def choose_rows(leading: Sequence[int], limit: int | None = None) -> list[int]:
    """The rows of a tile along each leading axis: 1, except along the last two, where the fastest numbers are chosen.

    limit: rows that registers hold."""
    limit = limit or most_rows()
    most = min(limit, limits.PRODUCT_TILE_ROWS)
    height, width = (1, *leading)[-2:]
    sizes = [(h, w) for w in range(1, min(width, limit) + 1) for h in range(1, min(height, limit // w) + 1)]

    def cost(size: tuple[int, int]) -> tuple[float, int]:
        h, w = size
        whole = rounded_up(height, h), rounded_up(width, w)
        tiles = whole[0] // h * (whole[1] // w)
        return tiles * (max(h * w, limits.TILE_LEAST_STEPS) + 1) * (
            1 if whole == (height, width) else limits.PRODUCT_COPY_COST
        ), h

    best = sorted(sizes, key=cost)
    default = next((h, w) for h, w in best if h * w <= most)
    tile = choose("tile_rows", default, [default, *(size for size in best if size != default)][:_TILES])
    return [*[1] * (len(leading) - 2), *tile[-len(leading) :]]


_TILES: Final = 7
"""Sizes of tiles that tuning may choose among, by the time that they are expected to take."""


def block_rows(leading: Sequence[int], tile: Sequence[int]) -> list[int]:
    """The rows of a cache block along each axis but the last."""
    left, block = limits.PRODUCT_BLOCK_ROWS, list[int]()
    for extent, size in zip(reversed(leading), reversed(tile), strict=True):
        tiles = rounded_up(extent, size) // size
        count = next(n for n in range(max(min(tiles, left // size), 1), 0, -1) if tiles % n == 0)
        count = choose_divisor("block_tiles", count, tiles)
        block.append(count * size)
        left = left // (count * size) if count == tiles else 1
    return block[::-1]


def _padded_rows(x: Tensor, transpose_x: bool, whole: Sequence[int], terms: int = 0) -> Any:
    """x with zeros after its rows, up to `whole` ones along each of their axes; and up to `terms` in a row."""
    *batch, rows = range(len(whole))
    axes = (*batch, rows + 1 if transpose_x else rows, *([rows + 1] if terms else []))
    whole = [*whole, *([terms] if terms else [])]
    sizes = [int(d) for d in x.shape]
    bounds = {axis: sizes[axis] for axis, size in zip(axes, whole, strict=True) if sizes[axis] < size}
    if not bounds:
        return x
    padded = dict(enumerate(sizes)) | dict(zip(axes, whole, strict=True))

    def element(*i: Expr) -> Any:
        inside = tirx.all(*(i[axis] < size for axis, size in bounds.items()))
        return tirx.if_then_else(inside, x(*i), tirx.const(0, x.dtype))

    return stored_copy(list(padded.values()), element, "padded")


def _panels(w: Tensor, transpose_w: bool, columns: int, terms: int, width: int, rows: int) -> Any:
    """w (terms, columns), with its axes exchanged if it is transposed, in panels of columns. Zeros fill the last one,
    or its last column where that takes no branch."""
    whole, count = columns % width == 0, -(-columns // width)

    def element(panel: Expr, k: Expr, lane: Expr) -> Any:
        column = panel * width + lane
        if transpose_w:
            return w(column if whole else tirx.min(column, columns - 1), k)
        return w(k, column) if whole else tirx.if_then_else(column < columns, w(k, column), tirx.const(0, w.dtype))

    by_panel = rows <= limits.PRODUCT_BLOCK_ROWS or count >= limits.PRODUCT_MANY_PANELS
    by_panel = choose("panel_by_panel", by_panel, (True, False))
    return stored_copy((count, terms, width), element, "packed", by_panel=by_panel)
