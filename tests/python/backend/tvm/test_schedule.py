"""Schedules keep results for all extents; functions without a matching rule keep their loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import build, unscheduled
from meta.backend.tvm.schedule import blocks, patterns
from meta.backend.tvm.schedule.cpu.matmul import match_contraction
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.ir.type import PATTERNS
from tests.python.backend.tvm.schedule_cases import CASES, SQUARE, Case, product, reduction, softmax
from tests.python.kernels_in_memory import forget_kernels


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk cache is off, so that every kernel is built."""
    monkeypatch.setenv("META_CACHE", "0")
    yield
    forget_kernels()


_SHAPES = [(1, 1), (4, 4), (3, 17), (17, 3), (33, 64), (5, 1000), (40, 1024), (1000, 5), (7, 4096)]
_EMPTY = [(0, 5), (5, 0), (0, 0)]


def _check_case(case: Case, shape: tuple[int, ...], symbolic: bool) -> None:
    compute, pattern, reference, results = case
    extents: tuple[Any, ...] = tuple("mn"[: len(shape)]) if symbolic else shape
    if symbolic and case in SQUARE.values():
        extents = ("m", "m")
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    result = reference(x)
    expected = result if isinstance(result, tuple) else (result,)
    outs = tuple(TensorSpec(s, str(w.dtype)) for s, w in zip(results(extents), expected, strict=True))
    kernel = build(KernelSpec("case", compute, (TensorSpec(extents, "float32"),), outs, pattern)).function
    actual = [tvm.tensor(np.full(np.shape(w), 77).astype(w.dtype)) for w in expected]
    kernel(tvm.tensor(x), *actual)
    for a, w in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), w, rtol=3e-6, atol=1e-6 * np.sqrt(x.size))


@pytest.mark.parametrize("name", CASES)
def test_static_extents(name: str) -> None:
    for shape in _SHAPES:
        _check_case(CASES[name], shape, symbolic=False)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NumPy's mean of no elements
@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
def test_symbolic_extents(name: str) -> None:
    for shape in _SHAPES:
        _check_case(CASES[name], shape, symbolic=True)
    for shape in _EMPTY:
        if name != "argmax of rows" or shape[1]:
            _check_case(CASES[name], shape, symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True])
def test_rows_that_read_each_other_share_no_loop(symbolic: bool) -> None:
    for size in (1, 5, 64, 100):
        _check_case(SQUARE["row sums of transpose"], (size, size), symbolic)


@pytest.mark.parametrize("pattern", [*PATTERNS, "no such pattern"])
@pytest.mark.parametrize("name", ["chain", "transpose", "softmax", "norm", "sum of all"])
def test_a_pattern_that_does_not_fit_is_only_a_hint(name: str, pattern: str) -> None:
    compute, _, reference, results = CASES[name]
    _check_case((compute, pattern, reference, results), (33, 50), symbolic=False)
    _check_case((compute, pattern, reference, results), (33, 50), symbolic=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "int8"])
def test_sums_in_other_dtypes(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16")
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    x = np.random.default_rng(1).integers(-1, 2, (6, 100)).astype(kind)
    for extents in ((6, 100), ("m", "n")):
        for axis in (0, 1):
            args, outs = (TensorSpec(extents, dtype),), (TensorSpec((extents[1 - axis],), dtype),)
            spec = KernelSpec("sum", reduction("sum", axis), args, outs, "reduce")
            out = tvm.tensor(np.zeros(x.shape[1 - axis], kind))
            build(spec).function(tvm.tensor(x), out)
            expected = x.astype(np.int64).sum(axis)
            np.testing.assert_array_equal(out.numpy().astype(np.int64), expected)


# Contractions.


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_in_every_layout(left: bool, right: bool) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in [(1, 1, 1), (64, 64, 64), (48, 32, 7), (64, 10, 128), (33, 17, 65), (1, 128, 200), (130, 96, 300)]:
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
        x, y = np.ascontiguousarray(a.T if left else a), np.ascontiguousarray(b.T if right else b)
        for symbolic in (False, True):
            m_, n_, k_ = ("m", "n", "k") if symbolic else (m, n, k)
            left_shape, right_shape = (k_, m_) if left else (m_, k_), (n_, k_) if right else (k_, n_)
            args = tuple(TensorSpec(shape, "float32") for shape in (left_shape, right_shape))
            outs = (TensorSpec((m_, n_), "float32"),)
            spec = KernelSpec("product", product(left, right), args, outs, "out_ewise_fusable")
            out = tvm.tensor(np.full((m, n), 5, np.float32))
            build(spec).function(tvm.tensor(x), tvm.tensor(y), out)
            np.testing.assert_allclose(out.numpy(), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_product_with_an_epilogue_and_convolution() -> None:
    def dense(x: Any, w: Any, bias: Any) -> Any:
        y = tvm.topi.nn.dense(x, w)
        return tvm.topi.nn.relu(tvm.topi.add(y, bias))

    rng = np.random.default_rng(3)
    x, w, bias = (rng.normal(size=s).astype(np.float32) for s in ((40, 96), (64, 96), (64,)))
    tensors = tuple(TensorSpec(a.shape, "float32") for a in (x, w, bias))
    out = tvm.tensor(np.zeros((40, 64), np.float32))
    build(KernelSpec("dense", dense, tensors, (TensorSpec((40, 64), "float32"),), "out_ewise_fusable")).function(
        *map(tvm.tensor, (x, w, bias)), out
    )
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w.T + bias, 0), rtol=1e-4, atol=1e-4)

    def convolution(data: Any, weight: Any) -> Any:
        return tvm.topi.nn.conv2d_nchw(data, weight, 2, 1, 1)

    data, weight = rng.normal(size=(2, 8, 32, 32)).astype(np.float32), rng.normal(size=(24, 8, 3, 3)).astype(np.float32)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("ncyxhw,ochw->noyx", windows, weight)
    out = tvm.tensor(np.zeros(expected.shape, np.float32))
    build(
        KernelSpec(
            "convolution", convolution, (TensorSpec(data.shape, "float32"), TensorSpec(weight.shape, "float32")),
            (TensorSpec(expected.shape, "float32"),), "out_ewise_fusable",
        )
    ).function(tvm.tensor(data), tvm.tensor(weight), out)  # fmt: skip
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


# Robustness.


def test_classification() -> None:
    for name, (compute, pattern, _, results) in CASES.items():
        dtype = "int64" if name == "argmax of rows" else "float32"
        outs = tuple(TensorSpec(s, dtype) for s in results((8, 8)))
        case = KernelSpec("case", compute, (TensorSpec((8, 8), "float32"),), outs, pattern)
        func = unscheduled(case).function
        assert patterns.classify(func) == pattern, name
    spec = TensorSpec((8, 8), "float32")
    func = unscheduled(KernelSpec("product", product(False, False), (spec, spec), (spec,), "opaque")).function
    assert patterns.classify(func) == "out_ewise_fusable"
    assert patterns.classify(_sort()) == "opaque"


def _sort() -> Any:
    x = tvm.te.placeholder((16,), "float32", name="x")
    return tvm.create_prim_func([x, tvm.topi.sort(x)])


def test_functions_without_a_matching_rule_keep_their_loops() -> None:
    func = _sort()
    for pattern in (*PATTERNS, "unknown"):
        scheduled = patterns.schedule(func, pattern, targets.target("cpu"))
        module = tvm.build_tir(tvm.IRModule({"main": scheduled}), targets.target("cpu"))
        x = np.random.default_rng(0).normal(size=16).astype(np.float32)
        out = tvm.tensor(np.zeros_like(x))
        module["main"](tvm.tensor(x), out)
        np.testing.assert_array_equal(out.numpy(), np.sort(x))


def test_the_function_is_not_modified_and_keeps_its_attributes() -> None:
    spec = TensorSpec((64, 64), "float32")
    func = unscheduled(KernelSpec("case", softmax, (spec,), (spec,), "softmax")).function.with_attr(
        "global_symbol", "mine"
    )
    before = func.script()
    scheduled = patterns.schedule(func, "softmax", targets.target("cpu"))
    assert func.script() == before
    assert scheduled.attrs["global_symbol"] == "mine"


def test_the_axes_of_a_contraction() -> None:
    spec = TensorSpec((8, 8), "float32")
    sch = tvm.Schedule(unscheduled(KernelSpec("p", product(False, True), (spec, spec), (spec,), "opaque")).function)
    (block,) = blocks.list_blocks(sch)
    contraction = match_contraction(block)
    assert contraction is not None
    assert (contraction.row_axis, contraction.column_axis) == (0, 1)
    sums = KernelSpec("s", reduction("sum", 1), (spec,), (TensorSpec((8,), "float32"),), "reduce")
    sch = tvm.Schedule(unscheduled(sums).function)
    assert match_contraction(blocks.list_blocks(sch)[0]) is None
