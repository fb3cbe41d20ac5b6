"""Memory of CUDA devices, kept for reuse: an allocation asks the driver only when nothing that is free fits.

The pool keeps a tensor over every block and hands out views of it. A view, whoever holds it - an array, a program, a
torch tensor through DLPack - counts as a reference to the block's tensor, so that a block is free when the pool's own
reference is the last one. Nobody has to say so: free blocks are looked for when there is none at hand.

Blocks belong to the stream that they were first allocated for. Work on one stream runs in order, so that memory may be
handed out again while kernels that used it are still waiting to run; another stream that was given the memory is waited
for first (`used_on`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from meta.backend.cuda import driver
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import tvm_device
from meta.device import Device, device
from meta.errors import DeviceError

SMALL: Final = 1 << 20
"""Bytes up to which several blocks are made at once, and only blocks of the same size are taken."""
_GRAIN: Final = 512
_AT_ONCE: Final = 32 << 10
"""Bytes of blocks that are made together, so that they are looked for once in as many allocations."""
_RECENT: Final = 3
"""Large blocks that are looked at before all of a size are: the results of a few calls are often alive at once."""


def rounded(count: int) -> int:
    """The size of the block for `count` bytes: at most an eighth more (or 512 bytes)."""
    if count <= _GRAIN:
        return _GRAIN
    step = max(1 << ((count - 1).bit_length() - 4), _GRAIN if count <= SMALL else SMALL // 4)
    return -(-count // step) * step


class Block:
    """Memory of the device. base: a tensor over it.  references: how many there are to that tensor.
    home: the list of blocks in use that it is in when it is.  streams: others that were given it."""

    __slots__ = ("base", "home", "references", "streams")

    def __init__(self, base: Any, home: list[Block]) -> None:
        self.base = base
        self.home = home
        # The first word of a TVM-FFI object is its reference count (the C ABI says so).
        self.references = ctypes.c_uint32.from_address(base.__chandle__())
        self.streams: set[int] | None = None


def _recent(used: list[Block] | None) -> Block | None:
    """One of the blocks handed out last that is free again, the usual case; its end is still in the GPU's cache."""
    if used:
        last = len(used) - 1
        for i in range(last, max(last - _RECENT, -1), -1):
            block = used[i]
            if block.references.value == 1 and block.streams is None:
                del used[i]  # other threads add behind it, at most
                return block
    return None


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes of a device. in_use: of blocks that something refers to.  cached: of free blocks, kept for reuse.
    reserved: both.  peak_reserved: the most there was.  free, total: of the whole device, by the driver.
    driver_calls: allocations that had to ask the driver, since the start."""

    in_use: int
    cached: int
    reserved: int
    peak_reserved: int
    free: int
    total: int
    driver_calls: int

    def __str__(self) -> str:
        def mib(count: int) -> str:
            return f"{count / 2**20:,.1f} MiB"

        return (
            f"{mib(self.in_use)} in use, {mib(self.cached)} cached, peak {mib(self.peak_reserved)}; "
            f"device {mib(self.free)} free of {mib(self.total)}"
        )


class Pool:
    """The blocks of one stream of a device, by size."""

    def __init__(self, device: DevicePools, stream: int) -> None:
        self.device = device
        self.stream = stream
        self.bytes = 0
        self.free: dict[int, list[Block]] = {}
        self.used: dict[int, list[Block]] = {}
        self._lent: dict[int, int] = {}
        """Of which larger size the last block for a size was."""

    def refill(self, size: int) -> Block:
        """A free block for `size` bytes; more free ones may have been found, or made."""
        with self.device.lock:
            if size > SMALL:
                recent = _recent(self.used.get(size)) or _recent(self.used.get(self._lent.get(size, 0)))
                if recent is not None:
                    return recent
            free, _ = self.lists(size)
            if not free:
                self.collect(size)
            if free:
                return free.pop()
            return self._larger(size) or self._made(size)

    def lists(self, size: int) -> tuple[list[Block], list[Block]]:
        """Free blocks of a size and those in use, which are the same lists for ever."""
        return self.free.setdefault(size, []), self.used.setdefault(size, [])

    def collect(self, size: int) -> None:
        """Find out which of the blocks of a size that were handed out are free again."""
        free, used = self.lists(size)
        seen = used[:]
        kept: list[Block] = []
        found: list[Block] = []
        for block in seen:
            (found if block.references.value == 1 else kept).append(block)
        used[: len(seen)] = kept  # other threads may have added some behind them
        for block in found:
            if block.streams:
                for stream in block.streams:
                    driver.wait_for(self.stream, stream)
                block.streams = None
        free.extend(found)

    def collect_all(self) -> None:
        for size in list(self.used):
            self.collect(size)

    def _larger(self, size: int) -> Block | None:
        """A free large block of up to twice the size."""
        if size <= SMALL:
            return None
        for other in sorted(s for s in self.free if size < s <= 2 * size):
            self.collect(other)
            if self.free[other]:
                self._lent[size] = other
                return self.free[other].pop()
        return None

    def _made(self, size: int) -> Block:
        free, used = self.lists(size)
        # The more there are in use, the longer it takes to look for free ones, and the more are made at once.
        for _ in range(max(_AT_ONCE // size, 2, len(used) // 4) if size <= SMALL else 1):
            free.append(Block(self.device.allocate(size), used))
            self.bytes += size
        self.device.peak = max(self.device.peak, self.device.reserved)
        return free.pop()

    def release(self) -> None:
        """Give the blocks that are not in use back to the driver."""
        self.collect_all()
        for size, blocks in self.free.items():
            self.bytes -= size * len(blocks)
            blocks.clear()


class DevicePools:
    """All memory of one device."""

    def __init__(self, on: Device) -> None:
        self.on = on
        self.lock = threading.RLock()
        self.pools: dict[int, Pool] = {}
        self.private: WeakSet[Pool] = WeakSet()
        self.peak = 0
        self.driver_calls = 0
        self.override = threading.local()

    def pool(self, stream: int) -> Pool:
        """That of a stream, or the private one that this thread works with."""
        private = getattr(self.override, "pool", None)
        if private is not None:
            return private
        found = self.pools.get(stream)
        if found is None:
            with self.lock:
                found = self.pools.setdefault(stream, Pool(self, stream))
        return found

    @property
    def reserved(self) -> int:
        """Bytes that the pools have from the driver."""
        return sum(pool.bytes for pool in self._all())

    def _all(self) -> list[Pool]:
        return [*self.pools.values(), *self.private]

    def allocate(self, count: int) -> Any:
        """Memory from the driver, everything that is cached given back first if need be. Raises DeviceError."""
        self.driver_calls += 1
        driver.enter(self.on)
        if count > SMALL and driver.memory(self.on)[0] < count:
            self.empty_cache()
            free = driver.memory(self.on)[0]
            if free < count:
                # Without asking for it: the CUDA runtime would report a failure again, to whoever calls it next.
                raise self.exhausted(count, f"{free / 2**20:,.1f} MiB are free")
        try:
            return tvm.alloc_tensor(
                tvm.Shape((count,)), tvm.dtype("uint8"), tvm.device(self.on.kind, self.on.index), None
            )
        except (RuntimeError, MemoryError) as error:
            raise self.exhausted(count, str(error).splitlines()[-1]) from None

    def exhausted(self, count: int, reason: str) -> DeviceError:
        return DeviceError(
            "memory",
            f"cannot allocate {count / 2**20:,.1f} MiB on {self.on}: {reason}; {self.stats()}",
            "as much as the device has free",
            "free arrays or use smaller ones (the cache was emptied)",
        )

    def empty_cache(self) -> None:
        """Give free memory back to the driver, once the kernels that used it are done."""
        with self.lock:
            driver.enter(self.on)
            driver.synchronize_all()
            for pool in self._all():
                pool.release()

    def stats(self) -> MemoryStats:
        with self.lock:
            cached = 0
            for pool in self._all():
                pool.collect_all()
                cached += sum(size * len(blocks) for size, blocks in pool.free.items())
            free, total = driver.memory(self.on)
            reserved = self.reserved
            return MemoryStats(reserved - cached, cached, reserved, self.peak, free, total, self.driver_calls)

    def private_pool(self, stream: int) -> Pool:
        """A pool whose memory nobody else gets, see `privately`; it goes back to the driver with the pool."""
        pool = Pool(self, stream)
        self.private.add(pool)
        return pool

    @contextmanager
    def privately(self, pool: Pool) -> Generator[None, None, None]:
        """Have this thread allocate from a private pool."""
        self.override.pool = pool
        try:
            yield
        finally:
            self.override.pool = None


_devices: dict[Device, DevicePools] = {}
_lock = threading.Lock()


def pools(on: Device) -> DevicePools:
    """The memory of a device."""
    found = _devices.get(on)
    if found is None:
        with _lock:
            found = _devices.setdefault(on, DevicePools(on))
    return found


def allocator(target: Any, kind: Any, count: int, on: Device, stream: Callable[[], int]) -> Callable[[], Any]:
    """A function of no arguments: an uninitialised tensor of a shape and dtype of `count` bytes.

    stream: gives the current one of this thread."""
    size = rounded(count)
    create, device = tvm.create_view, pools(on)
    override = device.override

    def new() -> Any:
        private = getattr(override, "pool", None)
        pool = device.pools.get(stream()) if private is None else private
        free = pool.free.get(size) if pool is not None else None
        try:
            block = free.pop() if free else (pool or device.pool(stream())).refill(size)
        except IndexError:  # another thread was faster
            block = device.pool(stream()).refill(size)
        out = create(block.base, target, kind, 0)
        block.home.append(block)  # afterwards: a block in use has a view
        return out

    return new


def used_on(data: Any, on: Device, stream: int) -> None:
    """Note that a stream was given the memory of a tensor: whoever gets the memory next waits for it."""
    address = data.data_ptr()
    device = pools(on)
    with device.lock:
        for pool in device.pools.values():
            for blocks in pool.used.values():
                for block in blocks:
                    if block.base.data_ptr() == address:
                        if stream != pool.stream:
                            block.streams = (block.streams or set()) | {stream}
                        return


def device_pools(on: Device) -> DevicePools:
    """The memory of a CUDA device; raises DeviceError when it is not there, or is the CPU."""
    if on.kind == "cpu":
        raise DeviceError("memory", "memory of the CPU is not pooled", 'device="cuda"')
    tvm_device(on)
    return pools(on)


def device_memory_stats(on: Device | str = "cuda") -> MemoryStats:
    """Bytes in use, cached and reserved on a CUDA device. Raises DeviceError when it is not there."""
    return device_pools(device(on)).stats()


def empty_cache(on: Device | str = "cuda") -> None:
    """Give the memory of a CUDA device that nothing uses back to the driver. Raises DeviceError when it is not
    there."""
    device_pools(device(on)).empty_cache()
