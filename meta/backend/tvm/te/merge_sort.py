"""Stable merge sort of rows on a GPU: blocks of threads sort and merge tiles in shared memory.

A tile has 4096 elements. A thread sorts 16 of them in registers. Runs of a tile are then merged in pairs: each thread
finds by bisection which elements of two runs are the 16 that it writes (the "merge path" of O. Green, R. McColl and D.
Bader, "GPU merge path: a GPU merging algorithm", 2012). Rows that fit into a tile share it and need no more. The tiles
of a longer row are merged in global memory, in pairs too, by one kernel for each doubling of the runs' length; a block
writes one tile. If only the first elements are asked for, merges stop there.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.intrinsic import Expr
from meta.backend.tvm.te.loops import launches
from meta.backend.tvm.te.merge import THREADS, TILE, TILE_BITS, SortedTile, if_, split_runs, synchronize, variable
from meta.backend.tvm.te.sorting import SortKernels, int64, simplified


class MergeKernels(SortKernels):
    """The kernels of a merge sort."""

    def statements(self) -> list[Any]:
        """Statements of the host that launch the kernels. TVM accepts kernels in loops, and not under conditions."""
        if not self.sort.may_merge:
            return []
        with tvm.IRBuilder() as tiles, launches(self.sort.sorts_tiles):
            self._sort_tiles()
        if self.sort.is_one_tile:
            return [tiles.get()]
        with tvm.IRBuilder() as runs, launches(self.sort.merge_passes) as pass_:
            self._merge_runs(pass_)
        return [tiles.get(), runs.get()]

    def _sort_tiles(self) -> None:
        """The kernel that sorts tiles, each with several rows or a part of one."""
        with (
            script_tirx.thread_binding(self.sort.tile_blocks, thread="blockIdx.x") as block,
            script_tirx.thread_binding(THREADS, thread="threadIdx.x") as thread,
        ):
            sort = self.sort.in_registers()
            row_bits = variable(sort.row_bits(on_device=True))
            first_row, tile_index = self.row_and_tile(block, sort.tiles)
            first_row = variable(first_row << (TILE_BITS - row_bits).astype("int64"))
            start = variable(tile_index * TILE)
            tile = SortedTile(sort.is_packed)

            def row_of(e: Expr) -> Expr:
                return first_row + (e >> row_bits).astype("int64")

            def rank_of(e: Expr) -> Expr:
                """The place of an element in the part of the row."""
                return (e & ((tirx.const(1, "int32") << row_bits) - 1)).astype("int64")

            def load(e: Expr) -> None:
                row, column = variable(row_of(e)), variable(start + rank_of(e))
                tile.write_end(e)
                with if_(tirx.all(row < sort.rows, column < sort.size)):
                    tile.write(e, self.load_key(sort, row, column))

            def store(e: Expr) -> None:
                row, rank = variable(row_of(e)), variable(rank_of(e))

                def position() -> Expr:
                    return tile.position(e) if sort.is_packed else start + rank_of(tile.slot(e))

                def keep() -> None:
                    with if_(start + rank < sort.size):
                        self.keep(row * sort.size + start + rank, tile.key(e), position)

                with if_(tirx.all(row < sort.rows, rank < sort.count)):
                    self.return_or_keep(sort, sort.tiles <= 1, row, rank, position, keep)

            tile.each(thread, load)
            synchronize()
            tile.sort(thread, row_bits)
            tile.each(thread, store)

    def _merge_runs(self, pass_: Expr) -> None:
        """The kernel of a pass, which merges runs of 2**pass_ tiles."""
        blocks = simplified(self.sort.rows * self.sort.written_tiles(pass_))
        with (
            script_tirx.thread_binding(blocks, thread="blockIdx.x") as block,
            script_tirx.thread_binding(THREADS, thread="threadIdx.x") as thread,
        ):
            sort, keys = self.sort.in_registers(), self.planes[0]
            row, tile_index = self.row_and_tile(block, sort.written_tiles(pass_))
            pair, tile_of_pair = tile_index >> (pass_ + 1), tile_index & ((int64(2) << pass_) - 1)
            if sort.is_partial:
                of_pair = variable(sort.tiles_of_pair(pass_))
                pair = variable(tirx.truncdiv(tile_index, of_pair))
                tile_of_pair = tile_index - pair * of_pair
            run = variable(int64(TILE) << pass_)
            pair = variable(pair * run * 2)
            rest = variable(sort.size - pair)
            left = variable(tirx.min(tirx.min(run, rest), sort.count))
            right = variable(tirx.min(tirx.max(tirx.min(run, rest - run), 0), sort.count))
            base = variable((pass_ & int64(1)) * sort.half + row * sort.size + pair)
            begin = variable(tile_of_pair * TILE)
            end = variable(tirx.max(tirx.min(begin + TILE, left + right), begin))

            def is_before(a: Expr, b: Expr) -> Expr:
                return keys[base + a] <= keys[base + run + b]

            from_left = split_runs([begin, end], left, right, thread, is_before)
            left_count = variable((from_left[1] - from_left[0]).astype("int32"))
            total = variable((end - begin).astype("int32"))
            left_place = variable(base + from_left[0])
            right_place = variable(base + run + begin - from_left[0])

            def place(e: Expr) -> Expr:
                """Where an element of the tile comes from."""
                from_right = right_place + (e - left_count).astype("int64")
                return tirx.Select(e < left_count, left_place + e.astype("int64"), from_right)

            tile = SortedTile(sort.is_packed)

            def load(e: Expr) -> None:
                with if_(e < total):
                    tile.write(e, keys[place(e)])

            def store(e: Expr) -> None:
                rank = variable(begin + e.astype("int64"))

                def position() -> Expr:
                    return tile.position(e) if sort.is_packed else self.planes[1][place(tile.slot(e))].astype("int64")

                def keep() -> None:
                    written = (int64(1) - (pass_ & int64(1))) * sort.half + row * sort.size + pair + rank
                    self.keep(written, tile.key(e), position)

                with if_(tirx.all(e < total, rank < sort.count)):
                    self.return_or_keep(sort, run * 2 >= sort.size, row, rank, position, keep)

            tile.each(thread, load)
            synchronize()
            tile.merge_two(thread, left_count, total)
            tile.each(thread, store)
