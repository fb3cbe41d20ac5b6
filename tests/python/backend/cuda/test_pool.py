"""The allocator of CUDA devices, on memory of the CPU: its logic needs no GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meta.backend.cuda import driver
from meta.backend.cuda import pool as memory_pool
from meta.backend.tvm import adapter as tvm
from meta.device import CPU
from meta.errors import DeviceError

MEBI = 1 << 20


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A driver that does nothing but note who waits for whom; the pools of the CPU are new."""
    noted: list[tuple[int, int]] = []
    monkeypatch.setattr(driver, "enter", lambda on: None)
    monkeypatch.setattr(driver, "memory", lambda on: (1 << 30, 1 << 40))
    monkeypatch.setattr(driver, "synchronize_all", lambda: None)
    monkeypatch.setattr(driver, "wait_for", lambda waiting, other: noted.append((waiting, other)))
    monkeypatch.setattr(memory_pool, "_devices", {})
    return noted


def maker(count: int, stream: Callable[[], int] = lambda: 0) -> Callable[[], Any]:
    return memory_pool.allocator(tvm.Shape((count,)), tvm.dtype("uint8"), count, CPU, stream)


@pytest.mark.parametrize("count", [1, 512, 513, 5000, MEBI, MEBI + 1, 100 * MEBI + 7])
def test_rounding_wastes_at_most_an_eighth(count: int) -> None:
    assert count <= memory_pool.rounded(count) <= max(512, count + max(512, count // 8) + MEBI // 4)
    assert memory_pool.rounded(memory_pool.rounded(count)) == memory_pool.rounded(count)
    assert memory_pool.rounded(count) % 512 == 0


@pytest.mark.usefixtures("waits")
def test_reuses_freed_memory() -> None:
    for count, most in ((1000, 64), (3 * MEBI, 2)):
        new = maker(count)
        before = memory_pool.pools(CPU).driver_calls
        addresses = {new().data_ptr() for _ in range(500)}
        assert len(addresses) <= most
        assert memory_pool.pools(CPU).driver_calls - before <= most


@pytest.mark.usefixtures("waits")
def test_does_not_reuse_memory_in_use() -> None:
    new = maker(4096)
    held = [new() for _ in range(50)]
    assert len({t.data_ptr() for t in held}) == 50
    view = np.from_dlpack(held.pop())  # no longer ours, but somebody's
    view[:] = 7
    others = [new() for _ in range(60)]
    assert len({t.data_ptr() for t in (*held, *others)} | {view.ctypes.data}) == 49 + 60 + 1
    assert (view == 7).all()


@pytest.mark.usefixtures("waits")
def test_reports_statistics_and_empties_the_cache() -> None:
    new = maker(3 * MEBI)
    held = [new(), new()]
    stats = memory_pool.pools(CPU).stats()
    assert (stats.in_use, stats.cached, stats.reserved) == (6 * MEBI, 0, 6 * MEBI)
    del held[0]
    gc.collect()
    stats = memory_pool.pools(CPU).stats()
    assert (stats.in_use, stats.cached, stats.driver_calls) == (3 * MEBI, 3 * MEBI, 2)
    memory_pool.pools(CPU).empty_cache()
    stats = memory_pool.pools(CPU).stats()
    assert (stats.cached, stats.reserved, stats.peak_reserved) == (0, 3 * MEBI, 6 * MEBI)
    assert "3.0 MiB in use" in str(stats)


@pytest.mark.usefixtures("waits")
def test_reuses_a_larger_block() -> None:
    first = maker(4 * MEBI)()
    address = first.data_ptr()
    del first
    assert maker(3 * MEBI)().data_ptr() == address
    assert maker(MEBI + 1)().data_ptr() != address  # not one of more than twice the size


def test_streams_do_not_share_blocks(waits: list[tuple[int, int]]) -> None:
    current = [1]
    new = maker(3 * MEBI, lambda: current[0])
    first = new()
    address = first.data_ptr()
    memory_pool.used_on(first, CPU, 5)
    del first
    current[0] = 2
    assert new().data_ptr() != address
    assert waits == []
    current[0] = 1
    assert new().data_ptr() == address
    assert waits == [(1, 5)]


@pytest.mark.usefixtures("waits")
def test_frees_private_memory_with_its_pool() -> None:
    device = memory_pool.pools(CPU)
    new = maker(2 * MEBI)
    pool = device.private_pool(0)
    with device.privately(pool):
        mine = new()
    other = new()
    assert mine.data_ptr() != other.data_ptr()
    assert device.reserved == 4 * MEBI
    address = mine.data_ptr()
    del mine
    assert new().data_ptr() != address
    del pool
    gc.collect()
    assert device.reserved == 4 * MEBI  # of `other` and of what came after it


def test_out_of_memory_error_reports_statistics(waits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    cached = maker(8 * MEBI)
    cached()
    monkeypatch.setattr(driver, "memory", lambda on: (MEBI, 1 << 40))
    with pytest.raises(DeviceError, match=r"cannot allocate 64\.0 MiB on cpu: 1\.0 MiB are free; 0\.0 MiB in use"):
        maker(64 * MEBI)()
    assert memory_pool.pools(CPU).reserved == 0  # what was cached was given back first
    assert waits == []
