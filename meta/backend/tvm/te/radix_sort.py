"""Stable radix sort of long rows on a GPU: one pass for each 8 bits of the keys, from the lowest.

A pass has three kernels. Blocks of threads count the digits in their tiles of a row; the counts of each digit are
summed up over the tiles; and each block puts the elements of its tile in the order of their digits, in shared memory,
and copies them to where the tile's elements of that digit belong. Threads of a warp find those with equal digits by
votes. (D. Merrill and A. Grimshaw, "High performance and scalable radix sorting", 2011.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.devices import WARP
from meta.backend.tvm.intrinsic import Expr
from meta.backend.tvm.te.loops import launches, registers
from meta.backend.tvm.te.merge import TILE, TILE_BITS, if_, shared, synchronize, variable
from meta.backend.tvm.te.sorting import DIGIT_BITS, Sort, SortKernels, int64, simplified

DIGITS: Final = 1 << DIGIT_BITS
"""Values of a digit; also the threads of a block, one for each digit where digits are summed up."""
_RANK_BITS: Final = TILE_BITS + 1
"""Bits of a number of elements of a tile."""


class RadixKernels(SortKernels):
    """The kernels of a radix sort. Its last planes are the counts of digits, and their totals over the tiles."""

    def statements(self) -> list[Any]:
        """Statements of the host that launch the kernels."""
        if not self.sort.may_use_radix:
            return []
        with tvm.IRBuilder() as builder, launches(self.sort.radix_passes) as pass_:
            self._count(pass_)
            self._sum_up()
            self._scatter(pass_)
        return [builder.get()]

    @property
    def counts(self) -> Any:
        return self.planes[-2]

    @property
    def totals(self) -> Any:
        return self.planes[-1]

    def _count(self, pass_: Expr) -> None:
        """The kernel that counts the digits of each tile."""
        with (
            script_tirx.thread_binding(self._blocks(self.sort.tiles), thread="blockIdx.x") as block,
            script_tirx.thread_binding(DIGITS, thread="threadIdx.x") as thread,
        ):
            sort = self.sort.in_registers()
            row, tile = self.row_and_tile(block, sort.tiles)
            found = shared(DIGITS, "int32")
            found[thread] = _int32(0)
            synchronize()
            with script_tirx.serial(0, TILE // DIGITS) as step:
                column = variable(tile * TILE + (step * DIGITS + thread).astype("int64"))
                with if_(column < sort.size):
                    digit = variable(sort.digit(self._load(sort, pass_, row, column), pass_))
                    address = tirx.address_of(found[digit])
                    script_tirx.evaluate(tirx.call_extern("int32", "atomicAdd", address, _int32(1)))
            synchronize()
            self.counts[(row * DIGITS + thread.astype("int64")) * sort.tiles + tile] = found[thread].astype("uint32")

    def _sum_up(self) -> None:
        """The kernel that replaces the counts of a digit by their sums over the tiles before, with a block for each
        digit of a row."""
        with (
            script_tirx.thread_binding(self._blocks(int64(DIGITS)), thread="blockIdx.x") as block,
            script_tirx.thread_binding(DIGITS, thread="threadIdx.x") as thread,
        ):
            tiles = variable(self.sort.tiles)
            of_thread = variable((tiles + (DIGITS - 1)) >> int64(DIGIT_BITS))
            first = variable(thread.astype("int64") * of_thread)
            total, sums = registers(1, "int64"), shared(DIGITS, "int64")

            def each(body: Callable[[Expr], None]) -> None:
                with script_tirx.serial(int64(0), of_thread) as step, if_(first + step < tiles):
                    body(variable(block * tiles + first + step))

            def add(place: Expr) -> None:
                total[0] = total[0] + self.counts[place].astype("int64")

            def replace(place: Expr) -> None:
                count = variable(self.counts[place].astype("int64"))
                self.counts[place] = total[0].astype("uint32")
                total[0] = total[0] + count

            total[0] = int64(0)
            each(add)
            total[0] = _sum_before(sums, thread, total[0])
            each(replace)
            with if_(tirx.EQ(thread, _int32(DIGITS - 1))):
                self.totals[block] = total[0].astype("uint32")

    def _scatter(self, pass_: Expr) -> None:
        """The kernel that moves the elements of each tile to their places in the order of the digits."""
        with (
            script_tirx.thread_binding(self._blocks(self.sort.tiles), thread="blockIdx.x") as block,
            script_tirx.thread_binding(DIGITS, thread="threadIdx.x") as thread,
        ):
            sort = self.sort.in_registers()
            row, tile = self.row_and_tile(block, sort.tiles)
            start = variable(tile * TILE)
            items, warps = TILE // DIGITS, DIGITS // WARP
            keys, slots = shared(TILE, "int64"), None if sort.is_packed else shared(TILE, "uint16")
            found, starts = shared(warps * DIGITS, "uint16"), shared(DIGITS, "int32")
            places = shared(DIGITS, "int64")
            own_keys, own_ranks = registers(items, "int64"), registers(items, "int32")
            digit, rank = registers(1, "int32"), registers(1, "int32")
            warp = variable(thread // WARP)
            first_of_warp = variable(warp * (items * WARP) + (thread & (WARP - 1)))
            for w in range(warps):
                found[w * DIGITS + thread] = tirx.const(0, "uint16")
            synchronize()
            for i in range(items):  # in the order of the row within a warp
                column = variable(start + (first_of_warp + i * WARP).astype("int64"))
                own_keys[i], digit[0] = int64(0), _int32(DIGITS - 1)  # beyond the end, and so behind all others
                with if_(column < sort.size):
                    own_keys[i] = self._load(sort, pass_, row, column)
                    digit[0] = sort.digit(own_keys[i], pass_)
                peers = variable(_peers(digit[0]))
                before = variable(_count_below(peers, thread))
                place = variable(warp * DIGITS + digit[0])
                rank[0] = found[place].astype("int32") + before
                own_ranks[i] = (digit[0] << _RANK_BITS) | rank[0]
                synchronize()
                with if_(tirx.EQ(before, _int32(0))):
                    found[place] = (rank[0] + _ones(peers)).astype("uint16")
                synchronize()
            count = registers(2, "int32")
            count[0] = _int32(0)
            for w in range(warps):
                count[1] = found[w * DIGITS + thread].astype("int32")
                found[w * DIGITS + thread] = count[0].astype("uint16")
                count[0] = count[0] + count[1]
            of_digit = variable(row * DIGITS + thread.astype("int64"))
            total = self.totals[of_digit].astype("int64")
            both = _sum_before(places, thread, (total << int64(_RANK_BITS)) | count[0].astype("int64"))
            in_tile = variable(both & ((1 << _RANK_BITS) - 1))
            starts[thread] = in_tile.astype("int32")
            before_tile = self.counts[of_digit * sort.tiles + tile].astype("int64")
            places[thread] = (both >> int64(_RANK_BITS)) + before_tile - in_tile
            synchronize()
            for i in range(items):
                digit[0] = own_ranks[i] >> _RANK_BITS
                before_warp = found[warp * DIGITS + digit[0]].astype("int32")
                rank[0] = starts[digit[0]] + before_warp + (own_ranks[i] & ((1 << _RANK_BITS) - 1))
                keys[rank[0]] = own_keys[i]
                if slots is not None:
                    slots[rank[0]] = (first_of_warp + i * WARP).astype("uint16")
            synchronize()
            with script_tirx.serial(0, items) as step:
                e = variable(step * DIGITS + thread)
                with if_(start + e.astype("int64") < sort.size):
                    key = variable(keys[e])
                    rank = variable(places[sort.digit(key, pass_)] + e.astype("int64"))

                    def position(e: Expr = e, key: Expr = key) -> Expr:
                        if slots is None:
                            return key & int64((1 << 32) - 1)
                        column = variable(start + slots[e].astype("int64"))
                        kept = self.planes[1][self._kept(sort, pass_ + 1, row, column)].astype("int64")
                        return tirx.if_then_else(tirx.EQ(pass_, int64(0)), column, kept)

                    def keep(rank: Expr = rank, key: Expr = key, position: Callable[[], Expr] = position) -> None:
                        self.keep(self._kept(sort, pass_, row, rank), key, position)

                    if sort.key_passes == 1:
                        self.return_(sort, row, rank, position)
                    else:
                        is_last = tirx.EQ(pass_, int64(sort.key_passes - 1))
                        self.return_or_keep(sort, is_last, row, rank, position, keep)

    def _blocks(self, of_row: Expr) -> Expr:
        return simplified(self.sort.rows * of_row)

    def _load(self, sort: Sort, pass_: Expr, row: Expr, column: Expr) -> Expr:
        """An element of the source in the first pass, later one that the pass before has moved."""
        if sort.key_passes == 1:
            return self.load_key(sort, row, column)
        element = registers(1, "int64")
        with script_tirx.If(tirx.EQ(pass_, int64(0))):
            with script_tirx.Then():
                element[0] = self.load_key(sort, row, column)
            with script_tirx.Else():
                element[0] = self.planes[0][self._kept(sort, pass_ + 1, row, column)]
        return element[0]

    @staticmethod
    def _kept(sort: Sort, pass_: Expr, row: Expr, column: Expr) -> Expr:
        """Where an element is kept that a pass writes; as the pass after the next one does."""
        return (pass_ & int64(1)) * sort.half + row * sort.size + column


def _peers(digit: Expr) -> Expr:
    """The lanes of the warp with the same digit, as bits: those that agree in each bit of it. (The instruction that
    finds them at once takes longer.)"""
    every, none = (tirx.const(bits, "uint32") for bits in ((1 << WARP) - 1, 0))
    peers = registers(2, "uint32")
    peers[0] = every
    for i in range(DIGIT_BITS):
        bit = variable((digit >> i) & 1)
        peers[1] = tirx.call_extern("uint32", "__ballot_sync", every, bit)
        peers[0] = peers[0] & (peers[1] ^ tirx.Select(tirx.EQ(bit, _int32(0)), every, none))
    return peers[0]


def _ones(bits: Expr) -> Expr:
    return tirx.call_pure_extern("int32", "__popc", bits)


def _count_below(peers: Expr, thread: Expr) -> Expr:
    """How many of these lanes are before the thread's lane."""
    lane = (thread & (WARP - 1)).astype("uint32")
    return _ones(peers & ((tirx.const(1, "uint32") << lane) - tirx.const(1, "uint32")))


def _sum_before(sums: Any, thread: Expr, value: Expr) -> Expr:
    """The sum of the values of all threads before this one."""
    own, other = variable(value), registers(1, "int64")
    sums[thread] = own
    distance = 1
    while distance < DIGITS:
        synchronize()
        other[0] = tirx.Select(thread >= distance, sums[tirx.max(thread - distance, 0)], int64(0))
        synchronize()
        sums[thread] = sums[thread] + other[0]
        distance *= 2
    total = variable(sums[thread] - own)
    synchronize()
    return total


def _int32(value: int) -> Expr:
    return tirx.const(value, "int32")
