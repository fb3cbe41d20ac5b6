"""A tile of elements in the shared memory of a block of threads, sorted and merged by all of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.te.loops import registers

ITEM_BITS: Final = 4
TILE_BITS: Final = 12
ITEMS: Final = 1 << ITEM_BITS
"""Elements that a thread sorts and merges."""
TILE: Final = 1 << TILE_BITS
"""Elements in the shared memory of a block."""
THREADS: Final = TILE // ITEMS


def _neighbours(count: int) -> Iterator[tuple[int, int]]:
    """Neighbours that are exchanged if they are out of order, which sorts in a stable way."""
    for step in range(count):
        for i in range(step % 2, count - 1, 2):
            yield i, i + 1


def _odd_even_merges(count: int) -> Iterator[tuple[int, int]]:
    """Pairs that are exchanged if they are out of order, fewer of them, for elements that differ: the odd-even merge
    sort of 2**n elements by K. Batcher ("Sorting networks and their applications", 1968)."""
    run = 1
    while run < count:
        distance = run
        while distance:
            for start in range(distance % run, count - distance, 2 * distance):
                for i in range(start, min(start + distance, count - distance)):
                    if i // (2 * run) == (i + distance) // (2 * run):
                        yield i, i + distance
            distance //= 2
        run *= 2


class SortedTile:
    """The elements of a block.

    is_packed: an element is one integer, with its position in the lower half. Otherwise it is a key, and its slot, its
    place in the tile before it was sorted.
    """

    def __init__(self, is_packed: bool) -> None:
        size = _skewed(TILE + ITEMS) + 1
        self.is_packed = is_packed
        self.keys = shared(size, "int64")
        self.slots: Any = None if is_packed else shared(size, "uint16")
        self.own_keys = registers(ITEMS, "int64")
        self.own_slots: Any = None if is_packed else registers(ITEMS, "int32")
        self.next_keys = registers(3, "int64")
        self.next_slots: Any = None if is_packed else registers(1, "int32")
        self.places = registers(4, "int32")

    def each(self, thread: Expr, body: Callable[[Expr], None]) -> None:
        """`body(e)` for all elements, adjacent threads at adjacent elements."""
        with script_tirx.serial(0, ITEMS) as step:
            body(variable(step * THREADS + thread))

    def write(self, e: Expr, key: Expr) -> None:
        self.keys[_skewed(e)] = key
        if self.slots is not None:
            self.slots[_skewed(e)] = e.astype("uint16")

    def write_end(self, e: Expr) -> None:
        """An element that comes after all others."""
        last = (1 << 63) - 1  # The key of elements beyond the end of a row.
        self.write(e, tirx.const(last, "int64"))

    def key(self, e: Expr) -> Expr:
        return self.keys[_skewed(e)]

    def slot(self, e: Expr) -> Expr:
        return self.slots[_skewed(e)].astype("int32")

    def position(self, e: Expr) -> Expr:
        """The position in an integer with key and position."""
        return self.keys[_skewed(e)] & tirx.const((1 << 32) - 1, "int64")

    def sort(self, thread: Expr, bits: Expr) -> None:
        """Sort each 2**bits elements, which are ITEMS at least."""
        own = thread * ITEMS
        for i in range(ITEMS):
            self._take(i, own + i)
        for pair in _odd_even_merges(ITEMS) if self.is_packed else _neighbours(ITEMS):
            self._exchange(*pair)
        self._write_own(own)
        with script_tirx.serial(ITEM_BITS, bits) as level:
            run = variable(tirx.const(1, "int32") << level)
            first = variable(own & (0 - (run * 2)))
            self._merge(first, first + run, first + run, first + run * 2, own - first)
            synchronize()
            self._write_own(own)

    def merge_two(self, thread: Expr, middle: Expr, end: Expr) -> None:
        """Merge the elements before `middle` with those from there to `end`."""
        own = thread * ITEMS
        self._merge(tirx.const(0, "int32"), middle, middle, end, variable(tirx.min(own, end)))
        synchronize()
        self._write_own(own)

    def _merge(self, left: Expr, left_end: Expr, right: Expr, right_end: Expr, skipped: Expr) -> None:
        """Take the elements of this thread from two runs: ITEMS after those that are `skipped`."""
        a, b, middle, chosen = range(4)
        places, keys = self.places, self.next_keys
        low, high = a, b  # of the number of elements of the left run among those that are skipped
        places[low] = tirx.max(skipped - (right_end - right), 0)
        places[high] = tirx.min(skipped, left_end - left)
        with script_tirx.While(places[low] < places[high]):
            places[middle] = (places[low] + places[high]) >> 1
            keys[0], keys[1] = self.key(left + places[middle]), self.key(right + (skipped - 1) - places[middle])
            with script_tirx.If(keys[0] <= keys[1]):  # TVM accepts no load from shared memory there
                with script_tirx.Then():
                    places[low] = places[middle] + 1
                with script_tirx.Else():
                    places[high] = places[middle]
        from_left = variable(places[low])
        places[a], places[b] = left + from_left, right + skipped - from_left
        keys[0], keys[1] = self.key(places[a]), self.key(places[b])
        for i in range(ITEMS):
            takes_right = variable(tirx.any(places[a] >= left_end, tirx.all(places[b] < right_end, keys[1] < keys[0])))
            self.own_keys[i] = tirx.Select(takes_right, keys[1], keys[0])
            places[chosen] = tirx.Select(takes_right, places[b], places[a])
            if self.own_slots is not None:
                self.own_slots[i] = self.slot(places[chosen])
            if i == ITEMS - 1:
                break
            places[chosen] = places[chosen] + 1
            keys[2] = self.key(places[chosen])
            places[a] = tirx.Select(takes_right, places[a], places[chosen])
            places[b] = tirx.Select(takes_right, places[chosen], places[b])
            keys[0] = tirx.Select(takes_right, keys[0], keys[2])
            keys[1] = tirx.Select(takes_right, keys[2], keys[1])

    def _take(self, i: int, e: Expr) -> None:
        self.own_keys[i] = self.key(e)
        if self.own_slots is not None:
            self.own_slots[i] = self.slot(e)

    def _exchange(self, i: int, j: int) -> None:
        """Put two elements of this thread in order."""
        keys, slots = self.own_keys, self.own_slots
        if slots is None:
            self.next_keys[0] = tirx.min(keys[i], keys[j])
            keys[j] = tirx.max(keys[i], keys[j])
            keys[i] = self.next_keys[0]
            return
        swaps = variable(keys[j] < keys[i])
        for own, other in ((keys, self.next_keys), (slots, self.next_slots)):
            other[0] = tirx.Select(swaps, own[j], own[i])
            own[j] = tirx.Select(swaps, own[i], own[j])
            own[i] = other[0]

    def _write_own(self, own: Expr) -> None:
        """Write the elements of this thread, once all threads have read theirs; then all threads wait."""
        for i in range(ITEMS):
            place = variable(_skewed(own + i))
            self.keys[place] = self.own_keys[i]
            if self.slots is not None:
                self.slots[place] = self.own_slots[i].astype("uint16")
        synchronize()


def split_runs(
    counts: Sequence[Expr], left: Expr, right: Expr, thread: Expr, is_before: Callable[[Expr, Expr], Expr]
) -> list[Expr]:
    """How many of the first elements of two merged runs are from the left one, for each of `counts`.

    All threads of the block look at different places at once, which divides the rest by their number.

    left, right: the lengths of the runs.  is_before(i, j): whether element i of the left run is before element j of the
    right one."""
    low, high = registers(len(counts), "int64"), registers(len(counts), "int64")
    found = registers(1, "int32")
    for i, count in enumerate(counts):
        low[i], high[i] = tirx.max(count - right, _int(0)), tirx.min(count, left)
    with script_tirx.While(tirx.any(*[low[i] < high[i] for i in range(len(counts))])):
        for i, count in enumerate(counts):
            step = variable((high[i] - low[i] + (THREADS - 1)) >> _int(THREADS.bit_length() - 1))
            place = variable(low[i] + (thread.astype("int64") + 1) * step - 1)
            found[0] = tirx.const(0, "int32")
            with if_(tirx.all(low[i] < high[i], place < high[i])):
                found[0] = is_before(place, count - 1 - place).astype("int32")
            found[0] = tirx.call_extern("int32", "__syncthreads_count", found[0])
            low[i] = low[i] + found[0].astype("int64") * step
            high[i] = tirx.min(high[i], low[i] + step - 1)
    return [variable(low[i]) for i in range(len(counts))]


def ceil_log2(value: Expr, *, on_device: bool = False) -> Expr:
    """The least b with value <= 2**b, as int32; of int64, and of at least 1."""
    if isinstance(value, tvm.IntImm):
        return tirx.const(max(int(value) - 1, 0).bit_length(), "int32")
    odd = tirx.max(value - 1, _int(0)) * 2 + 1
    zeros = tirx.call_pure_extern("int32", "__clzll", odd) if on_device else tirx.clz(odd)
    return 63 - zeros.astype("int32")


@contextmanager
def if_(condition: Expr) -> Generator[None, None, None]:
    """The statements under a condition."""
    with script_tirx.If(condition), script_tirx.Then():
        yield


def variable(value: Expr) -> Expr:
    """The value in a register: TVM's passes take minutes with long expressions that they see through."""
    if isinstance(value, tvm.IntImm):
        return value
    register = registers(1, dtype_of(value))
    register[0] = value
    return register[0]


def shared(size: int, dtype: str) -> Any:
    """Memory of a block of threads."""
    return script_tirx.buffer_proxy(script_tirx.alloc_buffer((size,), dtype, scope="shared"))


def synchronize() -> None:
    """All threads of the block wait for each other."""
    script_tirx.evaluate(script_tirx.tvm_storage_sync("shared"))


def _skewed(e: Any) -> Any:
    """Where an element is in shared memory: with gaps, so that adjacent threads write to different banks."""
    bank_bits = 5  # The logarithm of the number of shared memory's banks.
    return e + (e >> bank_bits)


def _int(value: int) -> Expr:
    return tirx.const(value, "int64")
