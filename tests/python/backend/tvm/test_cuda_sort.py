"""Sorting on CUDA without a GPU: results of kernels with small tiles, by threads in lock-step, and whole kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.gpu.checks import runs_on_device
from meta.backend.tvm.te import merge, merge_sort, radix_sort, sorting
from meta.backend.tvm.te.loops import LAUNCHES
from meta.backend.tvm.te.sort import sort_rows
from meta.ir.type import tensor_type
from tests.python.backend.tvm import lockstep
from tests.python.backend.tvm.test_column_sums import scheduled
from tests.python.backend.tvm.test_cuda_code import CUDA

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.fixture(name="small_tiles")
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 32 elements and 8 threads, digits of 3 bits and warps of 4 threads."""
    sizes = {"TILE_BITS": 5, "ITEM_BITS": 2, "TILE": 32, "ITEMS": 4, "THREADS": 8}
    sizes |= {"DIGIT_BITS": 3, "DIGITS": 8, "WARP": 4, "_RANK_BITS": 6}
    for name, size in sizes.items():
        for module in (merge, merge_sort, radix_sort, sorting):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)


def allocations(func: Any) -> list[Any]:
    """The buffers that a function allocates."""
    buffers: list[Any] = []
    tvm.structural_walk(func, (tvm.tirx.AllocBuffer, lambda allocation: buffers.append(allocation.buffer)))
    return buffers


def kernels_of(func: Any) -> list[Any]:
    """The loops over the blocks of threads of each kernel."""
    loops: list[Any] = []

    def visit(loop: Any) -> None:
        if loop.thread_binding is not None and str(loop.thread_binding.thread_tag) == "blockIdx.x":
            loops.append(loop)

    tvm.structural_walk(func, (tvm.For, visit))
    return loops


def sorted_positions(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The positions of a stable sort, by NumPy."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    reverse = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(reverse, axis)


def run(x: np.ndarray, axis: int, descending: bool, count: int | None, *, symbolic: bool) -> list[np.ndarray]:
    """Elements and positions by the kernels of a compute."""
    tvm.load()
    names = iter("abcdef")
    shape = [tvm.te.var(next(names), "int64") if symbolic else tvm.IntImm("int64", d) for d in x.shape]
    source = tvm.te.placeholder(shape, str(x.dtype), "x")
    kept = None if count is None else tvm.IntImm("int64", count)
    returned = count
    if symbolic and count is not None:
        kept = tvm.te.var("k", "int64")
    results = sort_rows(source, axis, descending, kept, values=True, positions=True)
    shape = list(x.shape)
    shape[axis] = shape[axis] if returned is None else returned
    outs = [np.zeros(shape, x.dtype), np.zeros(shape, np.int64)]
    lockstep.run(tvm.create_prim_func([source, *results]), [x, *outs])
    return outs


CASES = [
    ((1,), -1, None), ((3,), -1, None), ((32,), -1, None), ((33,), -1, None), ((100,), -1, None), ((200,), -1, None),
    ((5, 7), -1, None), ((20, 4), 0, None), ((3, 65), 1, None), ((3, 40, 2), 1, None), ((2, 3, 9), 0, None),
    ((9,), -1, 4), ((150,), -1, 1), ((100,), -1, 33), ((130, 2), 0, 40), ((2, 170), -1, 70), ((2, 170), -1, 170),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis", "count", "dtype", "descending", "symbolic"),
    [
        *((*case, "int32", False, True) for case in CASES),
        *((*case, "int8", True, False) for case in CASES[1::3]),
        *((*case, "int64", True, True) for case in CASES[2::5]),
    ],
    ids=str,
)
def test_rows_are_sorted(
    shape: tuple[int, ...],
    axis: int,
    count: int | None,
    dtype: str,
    descending: bool,
    symbolic: bool,
    small_tiles: None,
) -> None:
    """In a stable way: the extreme numbers of a dtype, and equal ones, in their order."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    x = rng.choice(np.array([limits.min, -3, 0, 1, 2, 3, limits.max], dtype), shape)
    axis %= len(shape)
    positions = sorted_positions(x, axis, descending).take(range(shape[axis] if count is None else count), axis)
    values, places = run(x, axis, descending, count, symbolic=symbolic)
    np.testing.assert_array_equal(places, positions)
    np.testing.assert_array_equal(values, np.take_along_axis(x, positions, axis))


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "symbolic"),
    [((150,), 0, "int8", True), ((65, 2), 0, "uint16", False), ((2, 33), 1, "bool", True), ((40,), 0, "int64", True)],
)
def test_long_rows_are_sorted_by_digits(
    shape: tuple[int, ...], axis: int, dtype: str, symbolic: bool, small_tiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the highest digit has fewer bits, and the sign."""
    monkeypatch.setattr(limits, "RADIX_MARGIN", -100)
    info = np.iinfo("uint8" if dtype == "bool" else dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, shape, info.dtype, endpoint=True)
    x = x > 100 if dtype == "bool" else x
    x[3:7] = x[0]
    for descending in (False, True):
        positions = sorted_positions(x, axis, descending)
        values, places = run(x, axis, descending, None, symbolic=symbolic)
        np.testing.assert_array_equal(places, positions)
        np.testing.assert_array_equal(values, np.take_along_axis(x, positions, axis))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_rows(shape: tuple[int, ...], small_tiles: None) -> None:
    x = np.zeros(shape, np.int32)
    values, places = run(x, len(shape) - 1, False, None, symbolic=True)
    assert values.shape == places.shape == shape
    values, _ = run(np.zeros((2, 5), np.int32), 1, False, 0, symbolic=True)
    assert values.shape == (2, 0)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_networks_sort(count: int) -> None:
    """All sequences of zeros and ones, and so all sequences."""
    inputs = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    for network in (merge._odd_even_merges, merge._neighbours):
        x = inputs.copy()
        for i, j in network(count):
            assert i < j
            x[:, i], x[:, j] = np.minimum(x[:, i], x[:, j]), np.maximum(x[:, i], x[:, j])
        assert (np.diff(x) >= 0).all()
    assert all(j == i + 1 for i, j in merge._neighbours(count)), "equal elements keep their order"


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_of_a_block(dtype: str) -> None:
    """At most what each GPU has: 48 KiB of shared memory."""
    func = scheduled("sort", (tensor_type((64, 100_000), dtype, CUDA), -1, True), symbolic=True)
    assert len(kernels_of(func)) == 5
    for kernel in kernels_of(func):
        shared = [b for b in allocations(kernel) if str(b.scope()) == "shared"]
        assert 0 < sum(int(b.shape[0]) * int(tvm.dtype(str(b.dtype)).bits) // 8 for b in shared) <= 48 << 10


@pytest.mark.parametrize(
    ("shape", "symbolic", "kernels"),
    [
        ((1024, 4096), False, 1),
        ((1024, 4097), False, 2),
        ((1024, 4096), True, 5),
        ((1024, 1), True, 1),
        ((2, 1 << 20), False, 3),
    ],
)
def test_kernels(shape: tuple[int, ...], symbolic: bool, kernels: int) -> None:
    """Rows that fit into a tile need one kernel, and no memory besides the result."""
    func = scheduled("sort", (tensor_type(shape, "float32", CUDA), -1, False), symbolic)
    assert len(kernels_of(func)) == kernels
    assert bool([b for b in allocations(func) if str(b.scope()) == "global"]) == (kernels > 1)


@pytest.mark.parametrize(
    ("count", "dtype", "elements"), [(5, "uint8", 2 << 20), (None, "uint8", 1), (None, "int16", 2 << 20)]
)
def test_memory_between_kernels(count: int | None, dtype: str, elements: int) -> None:
    """Two numbers for each element, except where it is moved once, from the operand to the result."""
    tvm.load()
    x = tvm.te.placeholder((tvm.IntImm("int64", 1 << 20),), dtype, "x")
    sort = sorting.Sort.of(x, 0, False, None if count is None else tvm.IntImm("int64", count))
    assert int(sort.planes[0][0]) == elements


def test_loops_that_launch_kernels_are_on_the_device() -> None:
    """TVM starts a kernel in each iteration of a host loop, which is right only where it is meant."""
    func = scheduled("sort", (tensor_type((3, 5000), "float32", CUDA), -1, False))
    assert runs_on_device(func)
    loops: list[Any] = []
    tvm.structural_walk(func, (tvm.For, lambda loop: loops.append(loop) if LAUNCHES in loop.annotations else None))
    assert [int(loop.extent) for loop in loops] == [1, 1]
