"""Schedules produce the loop structure that makes kernels fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.problems import sample
from benchmarks.schedules import scheduled_function
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import unscheduled
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.testing.samples import T
from tests.python.backend.tvm.schedule_cases import CASES, product


def _scheduled(name: str, shape: tuple[Any, ...], pattern: str = "") -> str:
    compute, declared, _, results = CASES[name]
    dtype = "int64" if name == "argmax of rows" else "float32"
    outs = tuple(TensorSpec(s, dtype) for s in results(shape))
    func = unscheduled(KernelSpec("case", compute, (TensorSpec(shape, "float32"),), outs, declared)).function
    return str(patterns.schedule(func, pattern or declared, targets.target("cpu")).script())


def _count_blocks(text: str) -> int:
    return sum(line.lstrip().startswith("with T.sblock(") for line in text.splitlines())


def test_elementwise_is_one_flat_vectorised_loop() -> None:
    text = _scheduled("chain", (30, 64))
    assert _count_blocks(text) == 1
    assert "T.vectorized(" in text
    assert "T.grid" not in text


def test_values_of_positions_keep_their_loops() -> None:
    """A flat loop would compute the positions of each element by divisions."""
    text = _scheduled("lower triangle", ("n", "m"))
    assert _count_blocks(text) == 1
    assert "//" not in text
    assert "%" not in text


def test_passes_of_softmax_share_one_row_loop() -> None:
    for shape in ((64, 256), (64, 250), ("m", "n")):
        text = _scheduled("softmax", shape)
        body = text[text.index("sblock_alloc_buffer") :]
        assert sum(line.startswith("    for ") for line in body.splitlines()) == 1
        assert body.count("T.vectorized(") >= 4


@pytest.mark.parametrize("name", ["chain", "softmax", "sum of rows", "sum of columns", "transpose"])
def test_only_large_static_work_is_parallel(name: str) -> None:
    assert "T.parallel(" in _scheduled(name, (2048, 2048))
    assert "T.parallel(" not in _scheduled(name, (64, 64))
    assert "T.parallel(" not in _scheduled(name, ("m", "n"))


def test_loops_over_one_element_are_not_parallel() -> None:
    """Threads divide the first loop of several elements: channels of one image, columns of one result row."""
    x = tvm.te.placeholder((1, 64, 128, 128), "float32", "x")
    k = tvm.te.reduce_axis((0, 7), "k")
    image = tvm.te.compute((1, 64, 128, 122), lambda n, c, h, w: tvm.te.sum(x[n, c, h, w + k], k), "image")
    rows = tvm.te.placeholder((1024, 1024), "float32", "rows")
    r = tvm.te.reduce_axis((0, 1024), "r")
    columns = tvm.te.compute((1, 1024), lambda i, j: tvm.te.sum(rows[r, j], r), "columns")
    for source, result, extent in ((x, image, 64 * 128), (rows, columns, 2)):
        func = tvm.create_prim_func([source, result])
        text = str(patterns.schedule(func, "reduce", targets.target("cpu")).script())
        assert f"T.parallel({extent})" in text


@pytest.mark.parametrize(("columns", "vectors"), [(56, None), (28, 16), (14, 8), (8, 8)])
def test_rows_are_not_fused_with_outer_loops(columns: int, vectors: int | None) -> None:
    """Fused loops would compute indices by divisions, element by element. Short rows get vectors, because LLVM unrolls
    them."""
    x = tvm.te.placeholder((64, 32, 1, 1), "float32", "x")
    y = tvm.te.compute((64, 32, 56, columns), lambda n, c, h, w: x[n, c, 0, 0], "y")
    func = tvm.create_prim_func([x, y])
    text = str(patterns.schedule(func, "broadcast", targets.target("cpu")).script())
    assert f"T.parallel({64 * 32 * 56})" in text
    assert ("T.vectorized" in text) == (vectors is not None)
    if vectors is not None:
        assert f"T.vectorized({min(vectors, targets.lanes(32))})" in text


def test_expensive_work_is_not_repeated() -> None:
    text = _scheduled("outer of expensive", (64, 64))
    assert _count_blocks(text) == 2


def test_products_are_tiled_and_packed() -> None:
    spec = TensorSpec((256, 256), "float32")
    func = unscheduled(KernelSpec("product", product(True, False), (spec, spec), (spec,), "out_ewise_fusable")).function
    text = str(patterns.schedule(func, "out_ewise_fusable", targets.target("cpu")).script())
    assert "T.unroll(" in text
    assert "T.vectorized(" in text
    assert text.count("reindex") >= 2


def _gpu() -> Any:
    return tvm.Target({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "thread_warp_size": 32,
                       "max_shared_memory_per_block": 49152}, host=targets.target("cpu"))  # fmt: skip


@pytest.mark.parametrize("operator", ["poisson", "standard_gamma"])
def test_loops_of_their_own_take_in_their_operands(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, real = _gpu(), targets.target
    monkeypatch.setattr(targets, "target", lambda kind: gpu if kind == "cuda" else real(kind))
    call = sample(operator, T(2, dtype="int64"), T(64, 40))
    function, _ = scheduled_function(call, "cuda", symbolic=True)
    assert [buffer.name for buffer in function.body.block.alloc_buffers] == [operator]  # not the rates in float64


@pytest.mark.parametrize("name", CASES)
def test_cuda_schedules_bind_threads(name: str) -> None:
    compute, pattern, _, results = CASES[name]
    target = _gpu()
    dtype = "int64" if name == "argmax of rows" else "float32"
    for shape in ((128, 256), ("m", "n")):
        outs = tuple(TensorSpec(s, dtype) for s in results(shape))
        func = unscheduled(KernelSpec("case", compute, (TensorSpec(shape, "float32"),), outs, pattern)).function
        text = patterns.schedule(func, pattern, target).script()
        assert "threadIdx.x" in text


@pytest.mark.parametrize(("shape", "has_tiles"), [((64, 32), True), ((65, 31), True), ((64, 12), False)])
def test_transposes_have_tiles_of_vectors(shape: tuple[int, int], has_tiles: bool) -> None:
    call = sample("transpose", T(*shape), (1, 0))
    function, _ = scheduled_function(call, "cpu", symbolic=False)
    assert ("T.vectorized(16)" in function.script()) == has_tiles


@pytest.mark.parametrize(
    ("shape", "axes"), [((17, 40), (1, 0)), ((5, 50, 31), (0, 2, 1)), ((2, 24, 19, 21), (0, 2, 3, 1))]
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_tiles_that_are_not_whole(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    host = np.random.default_rng(0).uniform(-2, 2, shape)
    x = meta.array(host).astype(dtype)
    result = meta.vm.compile(meta.trace(lambda x: meta.tanh(meta.transpose(x, axes)) + meta.transpose(x * x, axes)))(x)
    tolerance = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 0.06}[dtype]
    expected = np.transpose(np.tanh(host) + host * host, axes)
    np.testing.assert_allclose(result.numpy().astype(np.float64), expected, atol=tolerance)
