"""What is sorted along an axis by several kernels on a GPU, and what such kernels share.

An element is a key, an integer in the order of the elements (`position_key`), and a position. Keys of 32 bits and
positions are one integer of 64 bits, so that all elements differ. Keys of 64 bits have their positions beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from meta import dtype as dtypes
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, dtype_of
from meta.backend.tvm.te.merge import ITEM_BITS, TILE, TILE_BITS, ceil_log2, variable
from meta.backend.tvm.te.reduce import position_key

DIGIT_BITS: Final = 8
_HALF_BITS: Final = {"float16": (13, 19), "bfloat16": (16, 16)}
"""The lowest bit in use, and the number of bits, of keys of halves, which are keys of float32."""


def ordered_key(element: Expr, descending: bool) -> Expr:
    """The integer of 32 bits, of 64 for wider elements, that sorts as an element does, NaN as the largest one."""
    key = position_key(element, True)
    dtype = dtype_of(key)
    bits = dtypes.itemsize(dtype) * 8
    if dtype in ("uint32", "uint64"):
        key = tirx.reinterpret(f"int{bits}", key ^ tirx.const(1 << (bits - 1), dtype))
    key = key.astype("int32" if bits <= 32 else "int64")
    return key ^ tirx.const(-1, dtype_of(key)) if descending else key


@dataclass(frozen=True, slots=True)
class Sort:
    """What is sorted. Sizes are integers of 64 bits, logarithms of 32.

    Attributes:
        ndim, dtype: of the tensor.
        rows, size, inner: the number of rows, their length, and the distance between their elements.
        count: the elements of a row that are returned.
        is_partial: whether these may be fewer than the row has.
        tiles: the tiles of a row.
    """

    ndim: int
    dtype: str
    descending: bool
    rows: Expr
    size: Expr
    inner: Expr
    count: Expr
    is_partial: bool
    tiles: Expr

    @staticmethod
    def of(x: Tensor, axis: int, descending: bool, count: Any) -> Sort:
        extents = [_wide(extent) for extent in x.shape]
        rows = prod([*extents[:axis], *extents[axis + 1 :]], start=int64(1))
        size, inner = extents[axis], prod(extents[axis + 1 :], start=int64(1))
        tiles = simplified((size + (TILE - 1)) >> int64(TILE_BITS))
        returned = size if count is None else _wide(count)
        return Sort(len(extents), str(x.dtype), descending, simplified(rows), size, simplified(inner), returned,
                     count is not None, tiles)  # fmt: skip

    def in_registers(self) -> Sort:
        """The same with what follows from sizes in registers of a thread."""
        return replace(self, rows=variable(self.rows), tiles=variable(self.tiles), inner=variable(self.inner))

    @property
    def is_packed(self) -> bool:
        """Whether an element is one integer."""
        return dtypes.itemsize(self.dtype) <= 4

    @property
    def is_one_tile(self) -> bool:
        """Whether no row is longer than a tile."""
        return isinstance(self.tiles, tvm.IntImm) and int(self.tiles) <= 1

    @property
    def half(self) -> Expr:
        """The elements of one half of such a buffer: a kernel reads one and writes the other."""
        return self.rows * self.size

    @property
    def planes(self) -> list[tuple[Expr, str]]:
        """The sizes and dtypes of the buffers between kernels: of elements, or of keys and positions, in two halves; of
        the counts of digits in tiles, and in rows."""
        if self.is_one_tile:
            return []
        is_needed = self.tiles > 1
        if self.may_use_radix and self.key_passes == 1:
            is_needed = tirx.all(is_needed, tirx.Not(self.uses_radix))
        elements = simplified(tirx.Select(is_needed, self.half * 2, int64(1)))
        planes = [(elements, dtype) for dtype in (["int64"] if self.is_packed else ["int64", "uint32"])]
        if self.may_use_radix:
            digits = self.rows << int64(DIGIT_BITS)
            counts = (digits * self.tiles, digits)
            planes += [(simplified(tirx.Select(self.uses_radix, n, int64(1))), "uint32") for n in counts]
        return planes

    def row_bits(self, *, on_device: bool) -> Expr:
        """The logarithm of the elements of a tile that a row takes."""
        return simplified(tirx.max(tirx.min(ceil_log2(self.size, on_device=on_device), TILE_BITS), ITEM_BITS))

    @property
    def tile_blocks(self) -> Expr:
        """The blocks of threads that sort tiles."""
        shared_bits = int64(TILE_BITS) - self.row_bits(on_device=False).astype("int64")
        blocks = (self.rows * self.tiles + ((int64(1) << shared_bits) - 1)) >> shared_bits
        return simplified(blocks)

    @property
    def tile_bits(self) -> Expr:
        """The logarithm of the number of tiles of a row, rounded up."""
        return simplified(tirx.max(ceil_log2(self.size, on_device=False) - TILE_BITS, 0).astype("int64"))

    @property
    def is_empty(self) -> Expr:
        return tirx.any(self.rows <= 0, self.size <= 0, self.count <= 0)

    @property
    def may_use_radix(self) -> bool:
        """Whether some sizes are sorted by digits."""
        return not (self.is_partial or self.is_one_tile or _is_zero(simplified(self.uses_radix)))

    @property
    def may_merge(self) -> bool:
        """Whether some sizes are merged."""
        return not self.may_use_radix or not _is_one(simplified(self.uses_radix))

    @property
    def uses_radix(self) -> Expr:
        """Whether a pass for each digit takes less time than tiles and a pass for each doubling of the runs."""
        return self.tile_bits > self.key_passes + limits.RADIX_MARGIN

    @property
    def sorts_tiles(self) -> Expr:
        """1 if there are elements to sort and merge, else 0."""
        merges = tirx.Not(self.is_empty)
        if self.may_use_radix:
            merges = tirx.all(merges, tirx.Not(self.uses_radix))
        return simplified(merges.astype("int64"))

    @property
    def merge_passes(self) -> Expr:
        """How often runs are merged in global memory."""
        return simplified(self.tile_bits * self.sorts_tiles)

    @property
    def radix_passes(self) -> Expr:
        """How often elements are moved by their digits."""
        sorts = tirx.all(tirx.Not(self.is_empty), self.uses_radix)
        return simplified(sorts.astype("int64") * self.key_passes)

    @property
    def key_passes(self) -> int:
        """The digits of a key."""
        _, bits, _ = self._key_bits
        return -(-bits // DIGIT_BITS)

    @property
    def _key_bits(self) -> tuple[int, int, bool]:
        """The lowest bit of a key that is in use, the number of those, and whether the highest is the sign."""
        low, bits = _HALF_BITS.get(self.dtype, (0, dtypes.itemsize(self.dtype) * 8))
        return low, bits, self.dtype not in ("bool", "uint8", "uint16")

    def digit(self, element: Expr, pass_: Expr) -> Expr:
        """The digit of a pass, as int32."""
        low, bits, has_sign = self._key_bits
        shift = pass_ * DIGIT_BITS + (low + 32 if self.is_packed else low)
        digit = ((element >> shift) & ((1 << DIGIT_BITS) - 1)).astype("int32")
        top_bits = (bits - 1) % DIGIT_BITS + 1
        sign = 1 << (top_bits - 1) if has_sign else 0
        top = (digit & ((1 << top_bits) - 1)) ^ sign
        return tirx.Select(tirx.EQ(pass_, int64(self.key_passes - 1)), top, digit)

    def tiles_of_pair(self, pass_: Expr) -> Expr:
        """The tiles that are written of two runs."""
        tiles = int64(2) << pass_
        return tirx.min(tiles, (self.count + (TILE - 1)) >> int64(TILE_BITS)) if self.is_partial else tiles

    def written_tiles(self, pass_: Expr) -> Expr:
        """The tiles that are written of a row."""
        if not self.is_partial:
            return self.tiles
        pairs = (self.tiles + ((int64(2) << pass_) - 1)) >> (pass_ + 1)
        return pairs * self.tiles_of_pair(pass_)

    def key(self, element: Expr) -> Expr:
        """The key of an element, as int32 or int64."""
        return ordered_key(element, self.descending)

    def place_in_tensor(self, row: Expr, column: Expr, size: Expr) -> Expr:
        """The distance of an element from the first one of a tensor whose rows have `size` elements."""
        if _is_one(self.inner):
            return row * size + column
        outer = variable(tirx.truncdiv(row, self.inner))
        return (outer * size + column) * self.inner + (row - outer * self.inner)


class SortKernels:
    """The kernels of a sort, in TVM's script builder.

    Attributes:
        source, results: the tensor and what is returned of it.
        are_values: for each result, whether it has elements or positions.
        planes: the buffers between kernels.
    """

    def __init__(self, sort: Sort, are_values: Sequence[bool], buffers: Sequence[Any]) -> None:
        self.sort, self.are_values, self.source = sort, are_values, buffers[0]
        self.results, self.planes = buffers[1 : 1 + len(are_values)], buffers[1 + len(are_values) :]

    def row_and_tile(self, block: Expr, tiles: Expr) -> tuple[Expr, Expr]:
        """The row of a block of threads, and which of its tiles it has."""
        if self.sort.is_one_tile:
            return block, int64(0)
        tiles = variable(tiles)
        row = variable(tirx.truncdiv(block, tiles))
        return row, variable(block - row * tiles)

    def load_key(self, sort: Sort, row: Expr, column: Expr) -> Expr:
        """An element of the source as it is sorted."""
        key = sort.key(variable(self.source[self._place(sort, row, column, sort.size)]))
        return (key.astype("int64") << int64(32)) | column if sort.is_packed else key

    def return_or_keep(
        self, sort: Sort, is_last: Expr, row: Expr, rank: Expr, position: Callable[[], Expr], keep: Callable[[], None]
    ) -> None:
        """Store an element in the results if this kernel is the last one, else between kernels, by `keep`."""
        if sort.is_one_tile:
            self.return_(sort, row, rank, position)
            return
        with script_tirx.If(is_last):
            with script_tirx.Then():
                self.return_(sort, row, rank, position)
            with script_tirx.Else():
                keep()

    def return_(self, sort: Sort, row: Expr, rank: Expr, position: Callable[[], Expr]) -> None:
        """Store an element in the results."""
        place, of_source = self._place(sort, row, rank, sort.count), variable(position())
        for result, is_value in zip(self.results, self.are_values, strict=True):
            value = self.source[self._place(sort, row, of_source, sort.size)] if is_value else of_source
            result[place] = value

    def keep(self, place: Expr, key: Expr, position: Callable[[], Expr]) -> None:
        """Store an element in the buffers between kernels."""
        self.planes[0][place] = key
        if not self.sort.is_packed:
            self.planes[1][place] = position().astype("uint32")

    def _place(self, sort: Sort, row: Expr, column: Expr, size: Expr) -> tuple[Expr, ...]:
        """The index of an element of a row, by its distance from the first: tensors are compact."""
        return (*[int64(0)] * (sort.ndim - 1), sort.place_in_tensor(row, column, size))


def _wide(extent: Any) -> Expr:
    return int64(extent) if isinstance(extent, int) else extent.astype("int64")


def int64(value: int) -> Expr:
    return tirx.const(value, "int64")


def simplified(value: Expr) -> Expr:
    return tvm.Analyzer().simplify(value)


def _is_one(value: Expr) -> bool:
    return isinstance(value, tvm.IntImm) and int(value) == 1


def _is_zero(value: Expr) -> bool:
    return isinstance(value, tvm.IntImm) and int(value) == 0
