"""Products with a matrix in register tiles: sizes that tiles do not divide, all layouts, and what fuses with them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.problems import sample
from benchmarks.schedules import scheduled_function
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.schedule.buffers import may_share, merged
from meta.backend.tvm.te.product import block_rows, choose_rows, product
from meta.backend.tvm.te.tiles import most_rows, rounded_up
from meta.testing.samples import T
from tests.python.backend.tvm.processors import AVX2, AVX512, schedule_for

# (leading axes of x, terms, columns)
CASES: list[tuple[tuple[int, ...], int, int]] = [
    ((64,), 32, 64),
    ((17,), 40, 33),
    ((3, 5), 37, 100),
    ((2, 1, 9), 70, 47),
    ((40, 1), 16, 72),
    ((13,), 1500, 40),
    ((8,), 513, 8),
]


def _swapped(x: Any) -> Any:
    return np.ascontiguousarray(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize(("case", "dtype"), [*((c, "float32") for c in CASES), (CASES[2], "float64")], ids=str)
def test_results(case: Any, dtype: str, transposed: tuple[bool, bool]) -> None:
    leading, terms, columns = case
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((*leading, terms), (terms, columns)))
    operands = (_swapped(a) if swap else a for a, swap in zip((x, w), transposed, strict=True))
    program = meta.trace(lambda a, b: meta.matmul(a, b, *transposed))
    with meta.with_dialect("tvm"):
        result = meta.vm.compile(program)(*map(meta.array, operands)).numpy()
    expected = x.astype("float64") @ w.astype("float64")
    tolerance = 3e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def _scheduled(op: str, *args: Any) -> str:
    return scheduled_function(sample(op, *args), "cpu", symbolic=False)[0].script()


@pytest.mark.parametrize("processor", [AVX2, AVX512])
def test_tiles_stay_in_registers(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with a matrix are in tiles, but for few rows, columns or multiplications."""
    schedule_for(processor, monkeypatch)
    x, w = T(4, 16, 32), T(32, 64)
    in_tiles = {
        ("matmul", x, w): True,
        ("matmul", T(4, 32, 16), T(64, 32), True, True): True,
        ("matmul", T(32, 10), T(32, 70), True): True,
        ("dense", x, T(64, 32), T(64)): True,
        ("matmul", T(2, 32), T(32, 1024)): False,
        ("matmul", T(1024, 32), T(32, 7)): False,
        ("matmul", T(8, 8), T(8, 8)): False,
        ("matmul", T(2, 16, 32), T(2, 32, 64)): False,
        ("matmul", T(16, 32, dtype="bfloat16"), T(32, 64, dtype="bfloat16")): False,
    }
    for call, expected in in_tiles.items():
        assert ('"meta.tile"' in _scheduled(*call)) == expected, call


def test_symbolic_sizes_have_no_tiles() -> None:
    function, _ = scheduled_function(sample("matmul", T(64, 64), T(64, 64)), "cpu", symbolic=True)
    assert '"meta.tile"' not in function.script()


@pytest.mark.parametrize(("terms", "in_blocks"), [(limits.CONTRACTION_BLOCK, False), (513, True)])
def test_long_sums_of_products_are_added_in_blocks(terms: int, in_blocks: bool) -> None:
    assert ("block_sums" in _scheduled("matmul", T(64, terms), T(terms, 64))) == in_blocks


def test_long_sums_of_equal_products() -> None:
    """A sum in sequence has an error of 2e-3."""
    x, w = np.full((8, 200_000), 0.1, "float32"), np.full((200_000, 16), 0.1, "float32")
    program = meta.vm.compile(meta.trace(lambda x, w: meta.matmul(x, w)))
    with meta.with_dialect("tvm"):
        result = program(meta.array(x), meta.array(w)).numpy()
    np.testing.assert_allclose(result, 200_000 * np.float64(np.float32(0.1)) ** 2, rtol=1e-5)


@pytest.mark.parametrize(("processor", "width"), [(AVX2, 16), (AVX512, 32)])
def test_panels_of_a_transposed_matrix_are_exchanged_in_registers(
    processor: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are along the rows of the matrix, also where the last panel has columns that do not count."""
    schedule_for(processor, monkeypatch)
    for rows, columns in ((256, 64), (256, 60), (64, 60)):
        lines = _scheduled("dense", T(rows, 48), T(columns, 48), None).splitlines()
        copy = next(i for i, line in enumerate(lines) if 'T.sblock("packed")' in line)
        panels = f"{-(-columns // width)}, " if rows > 128 else ""
        assert lines[copy - 3].strip().endswith(f"in T.grid({panels}3, {width // 8}):")
        assert lines[copy - 2].strip().endswith("in T.unroll(8):")
        assert lines[copy - 1].strip().endswith("in T.vectorized(16):")


@pytest.mark.parametrize("columns", [96, 104])
@pytest.mark.parametrize("processor", [AVX2, AVX512])
def test_updates_are_computed_with_the_tiles_of_a_gradient(
    processor: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile stores its part of two results, the new velocity and the new weights, over the old ones, and needs no
    gradient in memory."""
    tvm.load()
    schedule_for(processor, monkeypatch)
    te, shape = tvm.te, (64, columns)
    x, dy, velocity, weights = (te.placeholder(s, "float32") for s in ((40, 64), (40, columns), shape, shape))
    gradient = product(x, dy, True, False, shape)
    new_velocity = te.compute(shape, lambda *i: velocity(*i) * 0.5 + gradient(*i) + weights(*i) * 0.125)
    new_weights = te.compute(shape, lambda *i: weights(*i) - new_velocity(*i) * 0.25)
    function = tvm.create_prim_func([x, dy, velocity, weights, new_weights, new_velocity])
    scheduled = patterns.schedule(function, "out_ewise_fusable", targets.target("cpu"))
    assert re.findall(r"(\w+) = T.sblock_alloc_buffer", scheduled.script()) == ["packed", "tiled_sum_local"]
    *_, old_velocity, old_weights, weights_, velocity_ = scheduled.params
    assert may_share(scheduled, old_weights, weights_)
    assert may_share(merged(scheduled, old_weights, weights_), old_velocity, velocity_)


@pytest.mark.parametrize("processor", [AVX2, AVX512])
def test_results_that_tiles_do_not_divide_are_checked_by_vectors(
    processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_for(processor, monkeypatch)
    stores = _scheduled("matmul", T(64, 64), T(64, 104)).rpartition('with T.sblock("result")')[0].splitlines()
    assert stores[-2].strip() == "for ax1_1 in T.vectorized(8):"


@pytest.mark.parametrize(("rows", "columns", "by_panel"), [(512, 256, False), (128, 256, True), (512, 1024, True)])
def test_threads_pack_their_panels(rows: int, columns: int, by_panel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are few rows or many panels, each panel is packed in the loop over panels, which threads share."""
    schedule_for(AVX512, monkeypatch)
    script = _scheduled("matmul", T(rows, 256), T(256, columns))
    assert (script.index("T.parallel") < script.index('T.sblock("packed")')) == by_panel


@pytest.mark.parametrize(("processor", "rows"), [(AVX2, 6), (AVX512, 8)])
def test_tiles_waste_little(processor: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_for(processor, monkeypatch)
    assert choose_rows((512,)) == [rows]
    for leading in [(64,), (17,), (1, 100), (100, 1), (8, 64), (3, 5), (13,), (4, 7, 3)]:
        tile = choose_rows(leading)
        assert len(tile) == len(leading)
        assert 1 <= np.prod(tile) <= min(most_rows(), 8)
        assert np.prod([rounded_up(n, size) for n, size in zip(leading, tile, strict=True)]) <= 1.3 * np.prod(leading)


def test_cache_blocks_divide_the_rows() -> None:
    assert block_rows((512,), (8,)) == [128]
    assert block_rows((8, 64), (1, 8)) == [2, 64]
    assert block_rows((3, 1000), (1, 8)) == [1, 40]
    assert block_rows((8, 2), (4, 2)) == [8, 2]
    assert block_rows((17,), (6,)) == [18]
