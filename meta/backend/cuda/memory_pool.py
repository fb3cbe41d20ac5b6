"""Memory pools of CUDA devices: an allocation calls the driver only if no free block fits.

The pool holds a tensor over every block and returns views of it. Each view (of an array, a program, or a torch tensor
through DLPack) is a reference to the block's tensor, so a block is free when only the pool's reference is left. Blocks
need no release: the pool looks for free ones when its list of them is empty.

A block belongs to the stream that it was first allocated for. Work on one stream runs in order, so the pool may reuse
memory before the kernels that use it have run. It first waits for other streams that use the memory (`record_stream`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from meta.backend.cuda import driver
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import tvm_device
from meta.device import Device, device
from meta.errors import DeviceError
from meta.records import record

SMALL: Final = 1 << 20
"""Bytes up to which blocks are allocated several at a time and reused for their exact size only."""
_BATCH: Final = 32 << 10
"""Bytes of small blocks that are allocated together, so that fewer allocations search for free blocks."""


def block_size(byte_count: int) -> int:
    """The size of the block for `byte_count` bytes: at most an eighth more (or 512 bytes)."""
    grain = 512
    if byte_count <= grain:
        return grain
    step = max(1 << ((byte_count - 1).bit_length() - 4), grain if byte_count <= SMALL else SMALL // 4)
    return -(-byte_count // step) * step


class PoolBlock:
    """Memory of the device. base: the tensor over it.  references: the reference count of that tensor.
    used: the list of used blocks that it joins when allocated.  streams: other streams that use it."""

    __slots__ = ("base", "references", "streams", "used")

    def __init__(self, base: Any, used: list[PoolBlock]) -> None:
        self.base = base
        self.used = used
        # The first word of a TVM-FFI object is its reference count, by the C ABI.
        self.references = ctypes.c_uint32.from_address(base.__chandle__())
        self.streams: set[int] | None = None


def _take_recent(used: list[PoolBlock] | None) -> PoolBlock | None:
    """A recently used block that is free again, the usual case; part of it is still in the GPU's cache."""
    # Number of most recently used large blocks to check first: the results of a few calls are often alive at once.
    recent = 3
    if used:
        last = len(used) - 1
        for i in range(last, max(last - recent, -1), -1):
            block = used[i]
            if block.references.value == 1 and block.streams is None:
                del used[i]  # safe: other threads only append
                return block
    return None


@record
class MemoryStats:
    """Bytes of a device. in_use: of referenced blocks.  cached: of free blocks, kept for reuse.  reserved: of both.
    peak_reserved: the maximum of reserved since the start or `reset_peak_memory`.
    free, total: of the whole device, as the driver reports them.
    driver_calls: the number of allocations that called the driver."""

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

    def __init__(self, owner: DevicePools, stream: int) -> None:
        self.owner = owner
        self.stream = stream
        self.bytes = 0
        self.free: dict[int, list[PoolBlock]] = {}
        self.used: dict[int, list[PoolBlock]] = {}
        self._larger_sizes: dict[int, int] = {}
        """Size of the larger block that last served a size."""

    def refill(self, size: int) -> PoolBlock:
        """A block for `size` bytes; fills the list of free blocks if it is empty."""
        with self.owner.lock:
            if size > SMALL:
                larger = self._larger_sizes.get(size, 0)
                recent = _take_recent(self.used.get(size)) or _take_recent(self.used.get(larger))
                if recent is not None:
                    return recent
            free, _ = self.block_lists(size)
            if not free:
                self.collect(size)
            if free:
                return free.pop()
            return self._take_larger(size) or self._allocate(size)

    def block_lists(self, size: int) -> tuple[list[PoolBlock], list[PoolBlock]]:
        """The lists of free and of used blocks of a size; the list objects never change."""
        return self.free.setdefault(size, []), self.used.setdefault(size, [])

    def collect(self, size: int) -> None:
        """Move the used blocks of a size that are free again to the list of free blocks."""
        free, used = self.block_lists(size)
        candidates = used[:]
        still_used: list[PoolBlock] = []
        freed: list[PoolBlock] = []
        for block in candidates:
            (freed if block.references.value == 1 else still_used).append(block)
        used[: len(candidates)] = still_used  # other threads may have appended blocks meanwhile
        for block in freed:
            if block.streams:
                for stream in block.streams:
                    driver.make_stream_wait(self.stream, stream)
                block.streams = None
        free.extend(freed)

    def collect_all(self) -> None:
        for size in list(self.used):
            self.collect(size)

    def _take_larger(self, size: int) -> PoolBlock | None:
        """A free block of up to twice the size, for large sizes."""
        if size <= SMALL:
            return None
        for other in sorted(s for s in self.free if size < s <= 2 * size):
            self.collect(other)
            if self.free[other]:
                self._larger_sizes[size] = other
                return self.free[other].pop()
        return None

    def _allocate(self, size: int) -> PoolBlock:
        """A new block from the driver; small sizes allocate several free blocks at once."""
        free, used = self.block_lists(size)
        # A search for free blocks takes longer the more are in use, so the batch grows with their number.
        for _ in range(max(_BATCH // size, 2, len(used) // 4) if size <= SMALL else 1):
            free.append(PoolBlock(self.owner.allocate(size), used))
            self.bytes += size
        self.owner.peak = max(self.owner.peak, self.owner.reserved)
        return free.pop()

    def release(self) -> None:
        """Return the free blocks to the driver."""
        self.collect_all()
        for size, blocks in self.free.items():
            self.bytes -= size * len(blocks)
            blocks.clear()


class DevicePools:
    """The memory pools of one device: one per stream, and private ones."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.pools: dict[int, Pool] = {}
        self.private: WeakSet[Pool] = WeakSet()
        self.peak = 0
        self.driver_calls = 0
        self.override = threading.local()

    def pool(self, stream: int) -> Pool:
        """The private pool that this thread uses, else the pool of the stream."""
        private = getattr(self.override, "pool", None)
        if private is not None:
            return private
        pool = self.pools.get(stream)
        if pool is None:
            with self.lock:
                pool = self.pools.setdefault(stream, Pool(self, stream))
        return pool

    @property
    def reserved(self) -> int:
        """Bytes that the pools hold."""
        return sum(pool.bytes for pool in self._all_pools())

    def _all_pools(self) -> list[Pool]:
        return [*self.pools.values(), *self.private]

    def allocate(self, byte_count: int) -> Any:
        """Allocate memory from the driver, after emptying the cache if it does not fit. Raises DeviceError."""
        self.driver_calls += 1
        device = self.device
        driver.set_device(device)
        if byte_count > SMALL and driver.memory_info(device)[0] < byte_count:
            self.empty_cache()
            free = driver.memory_info(device)[0]
            if free < byte_count:
                # Raised without trying: the CUDA runtime would report a failed allocation again in a later call.
                raise self.out_of_memory(byte_count, f"{free / 2**20:,.1f} MiB are free")
        try:
            return tvm.alloc_tensor(
                tvm.Shape((byte_count,)), tvm.dtype("uint8"), tvm.device(device.kind, device.index), None
            )
        except (RuntimeError, MemoryError) as error:
            raise self.out_of_memory(byte_count, str(error).splitlines()[-1]) from None

    def out_of_memory(self, byte_count: int, reason: str) -> DeviceError:
        """The error of an allocation that does not fit, with the statistics of the device."""
        return DeviceError(
            "memory",
            f"cannot allocate {byte_count / 2**20:,.1f} MiB on {self.device}: {reason}; {self.stats()}",
            "as much as the device has free",
            "free arrays or use smaller ones (the cache was emptied)",
        )

    def empty_cache(self) -> None:
        """Return free memory to the driver after the kernels that use it are done."""
        with self.lock:
            driver.set_device(self.device)
            driver.synchronize_all()
            for pool in self._all_pools():
                pool.release()

    def stats(self) -> MemoryStats:
        with self.lock:
            cached = 0
            for pool in self._all_pools():
                pool.collect_all()
                cached += sum(size * len(blocks) for size, blocks in pool.free.items())
            free, total = driver.memory_info(self.device)
            reserved = self.reserved
            return MemoryStats(reserved - cached, cached, reserved, self.peak, free, total, self.driver_calls)

    def reset_peak(self) -> None:
        with self.lock:
            self.peak = self.reserved

    def create_private_pool(self, stream: int) -> Pool:
        """Create a pool for `use_private_pool`; its memory returns to the driver when the pool is deleted."""
        pool = Pool(self, stream)
        self.private.add(pool)
        return pool

    @contextmanager
    def use_private_pool(self, pool: Pool) -> Generator[None, None, None]:
        """Allocate from a private pool in this thread."""
        self.override.pool = pool
        try:
            yield
        finally:
            self.override.pool = None


_devices: dict[Device, DevicePools] = {}
_lock = threading.Lock()


def find_pools(on: Device) -> DevicePools:
    """The pools of a device, created at the first use."""
    pools = _devices.get(on)
    if pools is None:
        with _lock:
            pools = _devices.setdefault(on, DevicePools(on))
    return pools


def allocator(
    shape: Any, dtype: Any, byte_count: int, on: Device, current_stream: Callable[[], int]
) -> Callable[[], Any]:
    """A function of no arguments that allocates an uninitialised tensor.

    shape, dtype: TVM's objects.  byte_count: the size of the tensor.  current_stream: returns this thread's stream."""
    size = block_size(byte_count)
    create, pools = tvm.create_view, find_pools(on)
    override = pools.override

    def allocate() -> Any:
        private = getattr(override, "pool", None)
        pool = pools.pools.get(current_stream()) if private is None else private
        free = pool.free.get(size) if pool is not None else None
        try:
            block = free.pop() if free else (pool or pools.pool(current_stream())).refill(size)
        except IndexError:  # another thread took the last free block
            block = pools.pool(current_stream()).refill(size)
        out = create(block.base, shape, dtype, 0)
        block.used.append(block)  # after the view exists: the list of used blocks expects one
        return out

    return allocate


def record_stream(data: Any, on: Device, stream: int) -> None:
    """Record that a stream uses the memory of a tensor; the pool waits for the stream before it reuses the memory."""
    address = data.data_ptr()
    pools = find_pools(on)
    with pools.lock:
        used = ((pool, block) for pool in pools.pools.values() for blocks in pool.used.values() for block in blocks)
        pool, block = next(((p, b) for p, b in used if b.base.data_ptr() == address), (None, None))
        if pool is not None and block is not None and stream != pool.stream:
            block.streams = (block.streams or set()) | {stream}


def require_pools(on: Device) -> DevicePools:
    """The pools of a CUDA device. Raises DeviceError for the CPU and for a missing device."""
    if on.kind == "cpu":
        raise DeviceError("memory", "memory of the CPU is not pooled", 'device="cuda"')
    tvm_device(on)
    return find_pools(on)


def device_memory_stats(on: Device | str = "cuda") -> MemoryStats:
    """Bytes in use, cached and reserved on a CUDA device. Raises DeviceError if the device is missing."""
    return require_pools(device(on)).stats()


def reset_peak_memory(on: Device | str = "cuda") -> None:
    """Let `device_memory_stats(on).peak_reserved` start again from what is reserved now. Raises DeviceError if the
    device is missing."""
    require_pools(device(on)).reset_peak()


def empty_cache(on: Device | str = "cuda") -> None:
    """Return the unused memory of a CUDA device to the driver. Raises DeviceError if the device is missing."""
    require_pools(device(on)).empty_cache()
