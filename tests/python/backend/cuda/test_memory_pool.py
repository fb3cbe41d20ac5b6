"""The memory pools of CUDA devices, tested on memory of the CPU without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meta.backend.cuda import driver, memory_pool
from meta.backend.tvm import adapter as tvm
from meta.device import CPU
from meta.errors import DeviceError

MEBI = 1 << 20


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (waiting, other) streams of each wait, from a driver that does nothing else; the pools of the CPU are new."""
    recorded: list[tuple[int, int]] = []
    monkeypatch.setattr(driver, "set_device", lambda on: None)
    monkeypatch.setattr(driver, "memory_info", lambda on: (1 << 30, 1 << 40))
    monkeypatch.setattr(driver, "synchronize_all", lambda: None)
    monkeypatch.setattr(driver, "make_stream_wait", lambda stream, other: recorded.append((stream, other)))
    monkeypatch.setattr(memory_pool, "_devices", {})
    return recorded


def allocator(count: int, stream: Callable[[], int] = lambda: 0) -> Callable[[], Any]:
    return memory_pool.allocator(tvm.Shape((count,)), tvm.dtype("uint8"), count, CPU, stream)


@pytest.mark.parametrize("count", [1, 512, 513, 5000, MEBI, MEBI + 1, 100 * MEBI + 7])
def test_rounding_wastes_at_most_an_eighth(count: int) -> None:
    assert count <= memory_pool.block_size(count) <= max(512, count + max(512, count // 8) + MEBI // 4)
    assert memory_pool.block_size(memory_pool.block_size(count)) == memory_pool.block_size(count)
    assert memory_pool.block_size(count) % 512 == 0


@pytest.mark.usefixtures("waits")
def test_reuses_freed_memory() -> None:
    for count, limit in ((1000, 64), (3 * MEBI, 2)):
        allocate = allocator(count)
        before = memory_pool.find_pools(CPU).driver_calls
        addresses = {allocate().data_ptr() for _ in range(500)}
        assert len(addresses) <= limit
        assert memory_pool.find_pools(CPU).driver_calls - before <= limit


@pytest.mark.usefixtures("waits")
def test_does_not_reuse_memory_in_use() -> None:
    allocate = allocator(4096)
    blocks = [allocate() for _ in range(50)]
    assert len({t.data_ptr() for t in blocks}) == 50
    view = np.from_dlpack(blocks.pop())  # no longer ours, but somebody's
    view[:] = 7
    others = [allocate() for _ in range(60)]
    assert len({t.data_ptr() for t in (*blocks, *others)} | {view.ctypes.data}) == 49 + 60 + 1
    assert (view == 7).all()


@pytest.mark.usefixtures("waits")
def test_reports_statistics_and_empties_the_cache() -> None:
    allocate = allocator(3 * MEBI)
    blocks = [allocate(), allocate()]
    stats = memory_pool.find_pools(CPU).stats()
    assert (stats.in_use, stats.cached, stats.reserved) == (6 * MEBI, 0, 6 * MEBI)
    del blocks[0]
    gc.collect()
    stats = memory_pool.find_pools(CPU).stats()
    assert (stats.in_use, stats.cached, stats.driver_calls) == (3 * MEBI, 3 * MEBI, 2)
    memory_pool.find_pools(CPU).empty_cache()
    stats = memory_pool.find_pools(CPU).stats()
    assert (stats.cached, stats.reserved, stats.peak_reserved) == (0, 3 * MEBI, 6 * MEBI)
    assert "3.0 MiB in use" in str(stats)


@pytest.mark.usefixtures("waits")
def test_reuses_a_larger_block() -> None:
    first = allocator(4 * MEBI)()
    address = first.data_ptr()
    del first
    assert allocator(3 * MEBI)().data_ptr() == address
    assert allocator(MEBI + 1)().data_ptr() != address  # blocks of more than twice the size are not reused


def test_streams_do_not_share_blocks(waits: list[tuple[int, int]]) -> None:
    current = [1]
    allocate = allocator(3 * MEBI, lambda: current[0])
    first = allocate()
    address = first.data_ptr()
    memory_pool.record_stream(first, CPU, 5)
    del first
    current[0] = 2
    assert allocate().data_ptr() != address
    assert waits == []
    current[0] = 1
    assert allocate().data_ptr() == address
    assert waits == [(1, 5)]


@pytest.mark.usefixtures("waits")
def test_frees_private_memory_with_its_pool() -> None:
    pools = memory_pool.find_pools(CPU)
    allocate = allocator(2 * MEBI)
    pool = pools.create_private_pool(0)
    with pools.use_private_pool(pool):
        mine = allocate()
    other = allocate()
    assert mine.data_ptr() != other.data_ptr()
    assert pools.reserved == 4 * MEBI
    address = mine.data_ptr()
    del mine
    assert allocate().data_ptr() != address
    del pool
    gc.collect()
    assert pools.reserved == 4 * MEBI  # of `other` and the last allocation


def test_out_of_memory_error_reports_statistics(waits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    cached = allocator(8 * MEBI)
    cached()
    monkeypatch.setattr(driver, "memory_info", lambda on: (MEBI, 1 << 40))
    with pytest.raises(DeviceError, match=r"cannot allocate 64\.0 MiB on cpu: 1\.0 MiB are free; 0\.0 MiB in use"):
        allocator(64 * MEBI)()
    assert memory_pool.find_pools(CPU).reserved == 0  # the cache was emptied first
    assert waits == []
